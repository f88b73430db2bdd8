//! Topics that subscribers have asked for.

use super::{Counters, Reason};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many subscriptions there are to each topic. Their number is bounded by those of connections and of topics that one may have.
#[derive(Debug, Default)]
pub struct Topics(Mutex<BTreeMap<Vec<u8>, usize>>);

impl Topics {
    /// A subscriber asks for a topic.
    pub(super) fn join(&self, topic: &[u8]) {
        *self.0.lock().entry(topic.to_vec()).or_insert(0) += 1;
    }

    /// A subscriber asks for it no more.
    pub(super) fn leave(&self, topic: &[u8]) {
        let mut topics = self.0.lock();
        if let Some(count) = topics.get_mut(topic) {
            *count -= 1;
            if *count == 0 {
                topics.remove(topic);
            }
        }
    }

    /// The topics that begin with `beginning`, in their order; those that are no text left out.
    pub fn beginning_with(&self, beginning: &str) -> Vec<String> {
        let topics = self.0.lock();
        let from = topics.range(beginning.as_bytes().to_vec()..).map(|(topic, _)| topic);
        from.take_while(|topic| topic.starts_with(beginning.as_bytes()))
            .filter_map(|topic| String::from_utf8(topic.clone()).ok())
            .collect()
    }
}

/// What one subscriber has asked for.
#[derive(Debug)]
pub(super) struct SubscriberTopics {
    topics: Vec<Vec<u8>>,
    topics_max: usize,
    /// Where they are counted, as long as this is there.
    counters: Arc<Counters>,
}

impl SubscriberTopics {
    pub(super) fn new(topics_max: usize, counters: Arc<Counters>) -> Self {
        Self { topics: Vec::new(), topics_max, counters }
    }

    /// The subscriber asks for what begins with `topic`.
    ///
    /// # Errors
    /// If it has as many topics as it may have.
    pub(super) fn subscribe(&mut self, topic: Vec<u8>) -> Result<(), Reason> {
        if self.topics.len() >= self.topics_max {
            return Err(Reason::TooManySubscriptions);
        }
        self.counters.topics.join(&topic);
        self.topics.push(topic);
        Ok(())
    }

    /// It asks for it no more, or once less; whether it did.
    pub(super) fn cancel(&mut self, topic: &[u8]) -> bool {
        let Some(at) = self.topics.iter().position(|asked| asked == topic) else { return false };
        self.counters.topics.leave(&self.topics.swap_remove(at));
        true
    }

    /// Whether it has asked for this topic.
    pub(super) fn has(&self, topic: &[u8]) -> bool {
        self.topics.iter().any(|asked| topic.starts_with(asked))
    }

    /// Bytes of the topics.
    pub(super) fn bytes(&self) -> usize {
        self.topics.iter().map(Vec::capacity).sum()
    }
}

impl Drop for SubscriberTopics {
    fn drop(&mut self) {
        self.topics.iter().for_each(|topic| self.counters.topics.leave(topic));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_subscriber_asks_for_is_counted_as_long_as_it_is_there() {
        let counters: Arc<Counters> = Arc::default();
        let mut asked = SubscriberTopics::new(3, Arc::clone(&counters));
        for topic in ["head.a", "event.", "event."] {
            asked.subscribe(topic.into()).unwrap();
        }
        assert_eq!(asked.subscribe("more".into()), Err(Reason::TooManySubscriptions));
        let heard =
            |asked: &SubscriberTopics| ["head.a", "head.b", "event.adopted"].map(|topic| asked.has(topic.as_bytes()));
        assert_eq!(heard(&asked), [true, false, true]);
        assert!(asked.cancel(b"event.") && asked.cancel(b"head.a") && !asked.cancel(b"head.a"));
        assert_eq!(heard(&asked), [false, false, true], "it has asked twice and cancelled once");
        assert_eq!(counters.topics.beginning_with(""), ["event."]);
        drop(asked);
        assert!(counters.topics.beginning_with("").is_empty());
    }

    #[test]
    fn a_topic_is_there_while_a_subscriber_asks_for_it() {
        let topics = Topics::default();
        for topic in ["head.b", "head.a", "head", "heads", "head.a", "weights.a"] {
            topics.join(topic.as_bytes());
        }
        topics.join(b"head.\xff");
        assert_eq!(topics.beginning_with("head."), ["head.a", "head.b"]);
        topics.leave(b"head.a");
        topics.leave(b"head.b");
        topics.leave(b"head.b");
        assert_eq!(topics.beginning_with("head."), ["head.a"]);
        topics.leave(b"head.a");
        assert!(topics.beginning_with("head.").is_empty());
    }
}

//! Topics that subscribers have asked for.

use parking_lot::Mutex;
use std::collections::BTreeMap;

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

#[cfg(test)]
mod tests {
    use super::*;

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

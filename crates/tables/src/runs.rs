//! Which numbers of its producer's run a stream has had: a row whose number comes again is the same row, or a contradiction.

use std::collections::HashMap;

/// Of a number that a row has in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    New,
    /// A row that is the same in all has it already.
    Copied,
    /// Another row has it already, or where rows are not kept, one of this run that has passed it.
    Taken,
}

/// The numbers of one run.
#[derive(Debug, Default)]
struct Run {
    highest: Option<u64>,
    /// Of each number the hash of its row; rising.
    known: Vec<(u64, u64)>,
}

/// The runs of all streams.
#[derive(Debug)]
pub(super) struct Runs {
    /// Whether rows are not kept, so that nothing is kept of each of them.
    in_pieces: bool,
    of_streams: Vec<HashMap<String, Run>>,
}

impl Runs {
    pub(super) fn new(in_pieces: bool) -> Self {
        Self { in_pieces, of_streams: Vec::new() }
    }

    /// Take in row `seq` of a run.
    pub(super) fn take(&mut self, stream: u32, run: &str, seq: u64, print: u64) -> Number {
        if self.of_streams.len() <= stream as usize {
            self.of_streams.resize_with(stream as usize + 1, HashMap::new);
        }
        let runs = &mut self.of_streams[stream as usize];
        if !runs.contains_key(run) {
            runs.insert(run.to_owned(), Run::default());
        }
        let run = runs.get_mut(run).expect("put there above");
        if run.highest.is_none_or(|highest| highest < seq) {
            run.highest = Some(seq);
            if !self.in_pieces {
                run.known.push((seq, print));
            }
            return Number::New;
        }
        match run.known.binary_search_by_key(&seq, |(known, _)| *known) {
            Ok(at) if run.known[at].1 == print => Number::Copied,
            Err(_) if !self.in_pieces => Number::New,
            _ => Number::Taken,
        }
    }
}

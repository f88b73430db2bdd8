//! Where a file breaks off and goes on, so that rows behind do not continue those before; and rows that only say how an episode ended.

/// Breaks of a file, and rows that terminate without a reward.
#[derive(Debug, Default)]
pub(super) struct Breaks {
    count: usize,
    /// Of each stream how many there were at its last row.
    before: Vec<usize>,
    /// How many rows terminate and have no reward, and where the first one is.
    bare: Option<(usize, u64)>,
}

impl Breaks {
    /// The file breaks here, where that means something.
    pub(super) fn add(&mut self, counts: bool) {
        self.count += usize::from(counts);
    }

    /// Whether the next row of a stream stands behind a break, and the one before it does not.
    pub(super) fn pass(&mut self, stream: u32) -> bool {
        let known = self.before.len();
        if stream as usize >= known {
            self.before.resize(stream as usize + 1, self.count);
        }
        std::mem::replace(&mut self.before[stream as usize], self.count) != self.count
    }

    /// A row terminates and has no reward: the one before it led there.
    pub(super) fn end_without_reward(&mut self, place: u64) {
        self.bare.get_or_insert((0, place)).0 += 1;
    }

    /// What there is to tell; `row` is what a row is called.
    pub(super) fn say(&self, row: &str) -> Option<String> {
        Some(match self.bare? {
            (1, place) => format!(
                "1 row terminates and has no reward: it only says that the row before it led to the end; {row} {place}"
            ),
            (count, place) => format!(
                "{count} rows terminate and have no reward: they only say that the rows before them led to the end; the first: {row} {place}"
            ),
        })
    }
}

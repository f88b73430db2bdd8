//! Rows that end episodes, and those that led there, kept for improvement when the window forgets them.

use crate::transition::Rows;
use crate::window::Window;
use std::collections::HashMap;

/// Rows from before the window that are kept beside it.
pub const ENDINGS_MAX: usize = 10_000;
/// Rows before one that terminates that are kept with it.
const LED_THERE: usize = 60;
/// Number of the stream that they are put into, each a chain of its own.
const ENDINGS: u32 = u32::MAX;

/// The newest [`ENDINGS_MAX`] of the `known` ones and of those that `before` holds and `after`, the same window with newer rows, has
/// forgotten. Where an episode ends in `after`, what led there is among them.
pub(super) fn kept(known: &Rows, before: &Window, after: &Window) -> Rows {
    let (start, mut left) = (after.start(), Left::default());
    for (rows, range, _) in backwards(after) {
        range.rev().for_each(|i| _ = left.leads_to_end(rows, i));
    }
    let mut found: Vec<(&Rows, usize)> = Vec::new();
    for (rows, range, offset) in backwards(before) {
        let forgotten = (start.saturating_sub(offset) as usize).min(range.len());
        let range = range.start..range.start + forgotten;
        found.extend(range.rev().filter(|&i| left.leads_to_end(rows, i)).map(|i| (rows, i)));
    }
    found.truncate(ENDINGS_MAX);
    let of_known = known.len().min(ENDINGS_MAX - found.len());
    let mut endings = Rows::new(before.dim(), before.rewards_per_row());
    endings.reserve_all(of_known + found.len());
    if of_known > 0 {
        endings.extend(known, known.len() - of_known..known.len());
    }
    found.iter().rev().for_each(|&(rows, i)| endings.extend(rows, i..i + 1));
    endings.streams.fill(ENDINGS);
    endings.starts_chain.fill(true);
    endings
}

fn backwards(window: &Window) -> impl Iterator<Item = (&Rows, std::ops::Range<usize>, u64)> {
    window.since(window.start()).collect::<Vec<_>>().into_iter().rev()
}

/// How many rows are still kept before the one looked at last, by stream: rows are looked at from the newest on.
#[derive(Default)]
struct Left {
    by_stream: HashMap<u32, usize>,
}

impl Left {
    /// Whether row i terminates, or leads to one that does: within [`LED_THERE`] rows, in the same chain.
    fn leads_to_end(&mut self, rows: &Rows, i: usize) -> bool {
        let left = self.by_stream.entry(rows.streams[i]).or_insert(0);
        *left = if rows.terminated[i] {
            LED_THERE + 1
        } else if rows.truncated[i] {
            0
        } else {
            left.saturating_sub(1)
        };
        let leads = *left > 0;
        if rows.starts_chain[i] {
            *left = 0;
        }
        leads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of one stream whose reward is their number.
    fn numbered(range: std::ops::Range<usize>, starts: &[usize], terminated: &[usize], truncated: &[usize]) -> Rows {
        let mut rows = Rows::new(1, 1);
        for i in range {
            let at = |places: &[usize]| places.contains(&i);
            rows.states.push(i as f64);
            rows.next_states.push(i as f64 + 1.0);
            rows.rewards.push(i as f64);
            rows.discounts.push(f64::NAN);
            rows.ratios.push(1.0);
            rows.streams.push(0);
            rows.terminated.push(at(terminated));
            rows.truncated.push(at(truncated));
            rows.starts_chain.push(at(starts));
        }
        rows
    }

    /// What is kept when a window of 8192 rows takes more and forgets the first 4096.
    fn kept_of(starts: &[usize], terminated: &[usize], truncated: &[usize]) -> Vec<usize> {
        let (first, more) = (0..8192, 8192..8292);
        let mut window = Window::new(1, 1, 4096);
        window.extend(&numbered(first.clone(), starts, terminated, truncated), first);
        let before = window.clone();
        window.extend(&numbered(more.clone(), starts, terminated, truncated), 0..more.len());
        assert_eq!(window.start(), 4096, "a segment has been forgotten");
        let endings = kept(&Rows::default(), &before, &window);
        assert!(endings.starts_chain.iter().all(|&starts| starts));
        endings.rewards.iter().map(|&number| number as usize).collect()
    }

    #[test]
    fn what_ends_episodes_is_kept_and_what_led_there() {
        assert_eq!(kept_of(&[0, 381], &[380], &[]), (320..=380).collect::<Vec<_>>());
        assert!(kept_of(&[], &[], &[]).is_empty());
    }

    #[test]
    fn what_led_to_an_end_that_the_window_still_holds_is_kept() {
        assert_eq!(kept_of(&[], &[4100], &[]), (4040..4096).collect::<Vec<_>>());
        assert!(kept_of(&[], &[4096 + 60], &[]).is_empty());
    }

    #[test]
    fn nothing_is_kept_of_the_episode_before() {
        assert_eq!(kept_of(&[350], &[380], &[349]), (350..=380).collect::<Vec<_>>());
        assert_eq!(kept_of(&[350], &[380], &[]), (350..=380).collect::<Vec<_>>());
        assert_eq!(kept_of(&[], &[380], &[349]), (350..=380).collect::<Vec<_>>());
    }

    #[test]
    fn the_newest_are_kept() {
        let ends: Vec<usize> = (0..4096).step_by(40).collect();
        let all = kept_of(&[], &ends, &[]);
        assert_eq!(all.len(), 4081, "all up to the last end");
        let known = numbered(0..ENDINGS_MAX, &[], &[], &[]);
        let mut window = Window::new(1, 1, 4096);
        window.extend(&numbered(0..8192, &[], &ends, &[]), 0..8192);
        let before = window.clone();
        window.extend(&numbered(0..1, &[], &[], &[]), 0..1);
        let endings = kept(&known, &before, &window);
        assert_eq!((endings.len(), endings.rewards[0]), (ENDINGS_MAX, 4081.0));
    }
}

//! Columns that say together which action was taken: in each row one of them is 1, and the others are 0.

/// What such columns are called, before a number or the name of an action: a_0, action_left.
const NAMES: [&str; 6] = ["a", "act", "action", "actions", "acts", "u"];

/// Columns whose names begin alike.
#[derive(Debug)]
struct OneHotGroup {
    /// How they begin, and whether numbers follow.
    begin: (String, bool),
    /// Where they are, in the order of these numbers or else of the file.
    columns: Vec<usize>,
    /// Whether each row had one 1 so far, and else 0.
    fits: bool,
}

/// Groups of columns that may be one action.
#[derive(Debug, Default)]
pub(super) struct OneHot(Vec<OneHotGroup>);

impl OneHot {
    /// Those among columns of these names.
    pub(super) fn new(names: &[String]) -> Self {
        let mut groups: Vec<OneHotGroup> = Vec::new();
        let mut parts: Vec<(usize, &str, Option<u32>)> =
            names.iter().enumerate().filter_map(|(at, name)| parts(name).map(|(begin, k)| (at, begin, k))).collect();
        parts.sort_by_key(|(_, _, k)| *k);
        for (at, begin, k) in parts {
            let begin = (begin.to_lowercase(), k.is_some());
            match groups.iter_mut().find(|group| group.begin == begin) {
                Some(group) => group.columns.push(at),
                None => groups.push(OneHotGroup { begin, columns: vec![at], fits: true }),
            }
        }
        groups.retain(|group| group.columns.len() > 1);
        Self(groups)
    }

    /// Take in a row; `bit`: what a column holds, if it is 0 or 1 or a flag.
    pub(super) fn take(&mut self, bit: impl Fn(usize) -> Option<bool>) {
        for group in &mut self.0 {
            let bits = || group.columns.iter().map(|&at| bit(at));
            group.fits &= bits().all(|bit| bit.is_some()) && bits().filter(|bit| *bit == Some(true)).count() == 1;
        }
    }

    /// Where the columns of the first action are, if there is one.
    pub(super) fn found(self) -> Vec<usize> {
        self.0.into_iter().find(|group| group.fits).map(|group| group.columns).unwrap_or_default()
    }
}

/// Whether a column of this name may hold the whole action of which another column is a part.
pub(super) fn is_whole(name: &str, part: &str) -> bool {
    parts(part).is_some_and(|(begin, _)| begin.eq_ignore_ascii_case(name))
}

/// How the name of a column of an action begins, and the number behind that, if it is one.
fn parts(name: &str) -> Option<(&str, Option<u32>)> {
    let (begin, rest) = name.split_at(name.find(|c: char| !c.is_alphabetic())?);
    let number = rest.trim_matches(|c: char| !c.is_alphanumeric()).parse().ok();
    // A number behind further words counts parts of something else: action_mask_0.
    let counted = number.is_none() && rest.ends_with(|c: char| c.is_ascii_digit());
    (NAMES.contains(&begin.to_lowercase().as_str()) && !counted).then_some((begin, number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cell::Cell, look::Look};

    /// The columns of the action in a table of these names.
    fn found(names: &str, rows: &[&str]) -> Vec<usize> {
        let names: Vec<String> = names.split(',').map(str::to_owned).collect();
        let (mut hot, mut looks) = (OneHot::new(&names), names.iter().map(|name| Look::new(name)).collect::<Vec<_>>());
        for row in rows {
            row.split(',').zip(&mut looks).for_each(|(cell, look)| look.take(Cell::Written(cell)));
            hot.take(|at| looks[at].bit);
        }
        hot.found()
    }

    #[test]
    fn an_action_is_told_by_names_and_by_one_1_in_each_row() {
        let rows = ["0.5,1,0,0", "0.25,0,0,1", "1,0,1,0"];
        for names in
            ["x,a_0,a_1,a_2", "x,a0,a1,a2", "x,Action.0,Action.1,Action.2", "x,action_go,action_stay,action_dock"]
        {
            assert_eq!(found(names, &rows), [1, 2, 3], "{names}");
        }
        assert_eq!(found("x,u_0,u_10,u_2", &rows), [1, 3, 2], "in the order of their numbers");
        assert_eq!(found("x,act_0,act_1,act_2", &["0.5,True,False,False", "1,no,no,yes"]), [1, 2, 3]);
        // A state of this kind stays one, and so do columns of other numbers.
        for names in [
            "x,action_mask_0,action_mask_1,action_mask_2",
            "x,mode_0,mode_1,mode_2",
            "x,next_action_0,next_action_1,next_action_2",
            "x,a_0,u_0,act_0",
            "a,u,act,x",
        ] {
            assert!(found(names, &rows).is_empty(), "{names}");
        }
        for row in ["0,1,1,0", "0,0,0,0", "0,0.5,0.5,0", "0,1,0,", "0,1,0,2"] {
            assert!(found("x,a_0,a_1,a_2", &[rows[0], row]).is_empty(), "{row}");
        }
        // A column about the action, such as its probability, is no part of it.
        assert_eq!(found("action_0,action_1,action_logp", &["0,1,-0.5", "1,0,-2"]), [0, 1]);
    }
}

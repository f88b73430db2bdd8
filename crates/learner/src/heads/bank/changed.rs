//! Heads that go, and heads that come.

use super::{Bank, Rule, position};
use crate::heads::Head;
use std::collections::{BTreeSet, HashMap};

impl Bank {
    /// Forget the heads that do not stay. Sums that they share with others are kept.
    pub(crate) fn retain(&mut self, stays: impl Fn(&Head) -> bool) {
        let kept: Vec<bool> = self.heads.iter().map(stays).collect();
        let numbers: Vec<usize> = kept
            .iter()
            .scan(0, |next, &kept| {
                let number = *next;
                *next += usize::from(kept);
                Some(number)
            })
            .collect();
        let groups = self.rules.len();
        let mut stay = Vec::with_capacity(groups);
        for (rule, group) in self.rules.iter_mut().zip(&mut self.statistics.groups) {
            let columns: Vec<usize> = (0..rule.columns.len()).filter(|&c| kept[rule.columns[c].head]).collect();
            if columns.len() < rule.columns.len() {
                group.select(&columns);
                rule.columns = columns.iter().map(|&c| rule.columns[c]).collect();
            }
            rule.columns.iter_mut().for_each(|column| column.head = numbers[column.head]);
            stay.push((!columns.is_empty()).then_some(columns));
        }
        if let Some(ring) = &mut self.ring {
            ring.select(&stay);
        }
        self.verified.select(&stay);
        let mut of_group = stay.iter().map(Option::is_some);
        self.rules.retain(|_| of_group.next().expect("as many as before"));
        let mut of_group = stay.iter().map(Option::is_some);
        self.statistics.groups.retain(|_| of_group.next().expect("as many as before"));
        self.drop_unused_weightings();
        let mut of_head = kept.iter();
        self.heads.to_mut().retain(|_| *of_head.next().expect("as many as before"));
        let mut of_head = kept.iter();
        self.scales.retain(|_| *of_head.next().expect("as many as before"));
    }

    /// Weightings and cumulants that no head has any more go with their sums.
    fn drop_unused_weightings(&mut self) {
        for gram in (0..self.weightings.len()).rev() {
            if self.rules.iter().all(|rule| rule.gram != gram) {
                self.weightings.remove(gram);
                self.statistics.grams.remove(gram);
                self.rules.iter_mut().filter(|rule| rule.gram > gram).for_each(|rule| rule.gram -= 1);
            }
        }
        let used: BTreeSet<usize> =
            self.rules.iter().flat_map(|rule| &rule.columns).map(|column| column.signal).collect();
        let numbers: HashMap<usize, usize> = used.iter().enumerate().map(|(to, &from)| (from, to)).collect();
        self.signals = used.iter().map(|&signal| self.signals[signal].clone()).collect();
        let columns = self.rules.iter_mut().flat_map(|rule| &mut rule.columns);
        columns.for_each(|column| column.signal = numbers[&column.signal]);
    }

    /// Take in the heads of `late`, which have learned the same rows with the same elements. Sums of the same rows are kept once.
    pub(crate) fn join(&mut self, mut late: Self) {
        // Both keep sums in the unit of their newest row, which is the same one.
        let factor = self.unit() / late.unit();
        if factor != 1.0 {
            late.statistics.scale(factor);
            late.ring.iter_mut().for_each(|ring| ring.scale(factor));
        }
        let known = self.rules.len();
        let signals: Vec<usize> = late.signals.into_iter().map(|of| position(&mut self.signals, of)).collect();
        let grams: Vec<usize> = late.weightings.iter().map(|of| position(&mut self.weightings, *of)).collect();
        for (gram, &number) in late.statistics.grams.into_iter().zip(&grams) {
            if number == self.statistics.grams.len() {
                self.statistics.grams.push(gram);
            }
        }
        let first = self.heads.len();
        let mut places = Vec::with_capacity(late.rules.len());
        for (mut rule, group) in late.rules.into_iter().zip(late.statistics.groups) {
            rule.gram = grams[rule.gram];
            for column in &mut rule.columns {
                (column.signal, column.head) = (signals[column.signal], first + column.head);
            }
            let same = |other: &Rule| {
                (other.rate, other.gram) == (rule.rate, rule.gram) && other.continuation == rule.continuation
            };
            let place = self.rules[..known].iter().position(same);
            places.push(place.unwrap_or(self.rules.len()));
            match place {
                Some(g) => {
                    self.rules[g].columns.append(&mut rule.columns);
                    self.statistics.groups[g].join(group);
                }
                None => {
                    self.rules.push(rule);
                    self.statistics.groups.push(group);
                }
            }
        }
        self.ring = self.ring.take().zip(late.ring).map(|(ring, other)| ring.joined(other, known, &places));
        self.verified.join(&self.sizes());
        self.heads.to_mut().append(late.heads.to_mut());
        self.scales.append(&mut late.scales);
    }
}

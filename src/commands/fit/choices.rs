//! Values of the options of `criticd fit`, and what they stand for in the learner.

use crate::commands::Failure;
use crate::commands::given::name_of;
use crate::learner::KindSetting;
use crate::learner::{KernelKind, SelectionKind};
use crate::math::embedding::StateKind;
use crate::table::Table;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum SelectionChoice {
    Returns,
    Evidence,
    Loo,
}

pub(super) fn kernel(text: &str) -> Result<KernelKind, String> {
    match text {
        "isotropic" => Ok(KernelKind::Isotropic),
        "ard" => Ok(KernelKind::Ard),
        "auto" => Ok(KernelKind::Auto),
        "factor" => Ok(KernelKind::Factor(None)),
        _ => match text.strip_prefix("factor:").map(str::parse) {
            Some(Ok(k)) if k > 0 => Ok(KernelKind::Factor(Some(k))),
            _ => Err("isotropic, ard, factor, factor:K or auto".into()),
        },
    }
}

impl SelectionChoice {
    pub(super) fn kind(self) -> SelectionKind {
        match self {
            Self::Returns => SelectionKind::Returns,
            // It begins where the evidence ends.
            Self::Evidence | Self::Loo => SelectionKind::Evidence,
        }
    }
}

/// Have the variables of a table that hold texts be categories.
pub(super) fn take_categories(kinds: &mut Vec<KindSetting>, table: &Table) -> Result<(), Failure> {
    if kinds.is_empty() {
        *kinds = KindSetting::known(&table.categories().kinds(table.dim()));
    }
    let other = |d: &usize| kinds.get(*d).is_some_and(|kind| kind.kind() != StateKind::Category);
    match table.texts().find(other) {
        None => Ok(()),
        Some(d) => Err(Failure::usage(format!(
            "--state-kinds: {} holds texts, which are a category: say category for it",
            name_of(table, d)
        ))),
    }
}

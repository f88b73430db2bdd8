//! Periods that the settings leave open, learned from the rows of a refit before its kernel is selected.

use super::ROWS_MIN;
use super::job::RefitJob;
use super::report::RefitTrigger;
use crate::allowance::Allowance;
use crate::diagnostics::Diagnostic;
use crate::math::embedding::StateKind;
use crate::math::evidence::KeepGoing;
use crate::math::kernel::Kernel;
use crate::period::period;
use crate::settings::KindSetting;
use crate::transition::name_of_state;
use std::borrow::Cow;

/// Part of a refit's budget that all variables together may spend, the first ones first.
const SHARE: f64 = 0.3;

impl RefitJob {
    /// Whether a kernel takes each state variable for what the settings say by now, or for what they leave open.
    pub(super) fn is_of_kinds(&self, kernel: &Kernel) -> bool {
        let dim = self.window.dim();
        let (kinds, may_bend) = (self.settings.kinds(dim), self.settings.may_bend());
        let as_said = |d: usize| kernel.kind_of(d) == kinds.get(d).copied().unwrap_or_default();
        (0..dim).all(|d| as_said(d) || may_bend && kernel.kind_of(d).is_bent())
    }

    /// The same question with the periods that its settings leave open: what the rows show, else what the present kernel has; and
    /// what is to be said of each. A variable without either stays real. An improvement selects no kernel, so that its rows are asked
    /// nothing.
    pub(super) fn with_periods(
        &self,
        keep_going: KeepGoing<'_>,
        allowance: &Allowance,
    ) -> (Cow<'_, Self>, Vec<Diagnostic>) {
        let kinds = &self.settings.state_kinds;
        let open: Vec<usize> = (0..kinds.len()).filter(|&d| kinds[d] == KindSetting::Periodic).collect();
        if open.is_empty() || self.settings.check_dim(self.window.dim()).is_err() {
            return (Cow::Borrowed(self), Vec::new());
        }
        let mut job = self.clone();
        let of_present = |d: usize| match self.current.hyperparameters.kernel.kind_of(d) {
            StateKind::Periodic(period) => Some(period * self.current.inputs.scale[d]),
            _ => None,
        };
        for &d in &open {
            if let Some(period) = of_present(d) {
                job.settings.state_kinds[d] = KindSetting::Known(StateKind::Periodic(period));
            }
        }
        let rows = self.rows();
        if self.trigger == RefitTrigger::Improvement || rows.len() < ROWS_MIN {
            return (Cow::Owned(job), Vec::new());
        }
        let mut said = Vec::new();
        let own = Allowance::of_products((SHARE * allowance.rest() as f64) as u64);
        for d in open {
            let kept = of_present(d);
            let found = period(&rows, d, &job.settings, kept, (keep_going, &own));
            if let Some(period) = found {
                job.settings.state_kinds[d] = KindSetting::Known(StateKind::Periodic(period));
            }
            let variable = name_of_state(self.names.as_deref(), d);
            said.push(Diagnostic::Period { variable, found, kept });
        }
        allowance.spend(own.spent() as f64);
        (Cow::Owned(job), said)
    }
}

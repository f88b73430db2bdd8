//! What a row may say about the policies that took its action, or would have: checks shared by messages and tables.

use super::MAGNITUDE_MAX;

/// By how much the probabilities of one row may miss the sum 1.
const SUM_TOLERANCE: f64 = 1e-6;

/// target_prob / behavior_prob: how much more likely the policy that is judged takes the row's action; not clipped, 1 where
/// either is missing.
pub fn ratio(behavior_prob: Option<f64>, target_prob: Option<f64>) -> f64 {
    behavior_prob.zip(target_prob).map_or(1.0, |(behavior, target)| target / behavior)
}

/// Check the probability or density under which an action was taken, a finite number.
///
/// # Errors
/// A sentence for people.
pub fn check_behavior(prob: f64) -> Result<(), String> {
    if prob > 0.0 {
        return Ok(());
    }
    Err(format!("an action that was taken has a probability or density above 0, this one {prob}"))
}

/// Check the probability or density of an action under the policy that is judged, a finite number, with that under which
/// it was taken.
///
/// # Errors
/// A sentence for people.
pub fn check_target(prob: f64, behavior_prob: Option<f64>) -> Result<(), String> {
    if prob < 0.0 {
        return Err(format!("a probability or density is at least 0, this one is {prob}"));
    }
    let ratio = ratio(behavior_prob, Some(prob));
    if ratio <= MAGNITUDE_MAX {
        return Ok(());
    }
    Err(format!(
        "the ratio to the probability under which the action was taken, {ratio:e}, is beyond {MAGNITUDE_MAX:e}"
    ))
}

/// Check the probabilities of all discrete actions, finite numbers.
///
/// # Errors
/// Which one is at fault, if one is, and a sentence for people.
pub fn check_distribution(probs: &[f64]) -> Result<(), (Option<usize>, String)> {
    if let Some(k) = probs.iter().position(|p| !(0.0..=1.0).contains(p)) {
        return Err((Some(k), format!("a probability lies in [0, 1], this one is {}", probs[k])));
    }
    let sum: f64 = probs.iter().sum();
    if (sum - 1.0).abs() <= SUM_TOLERANCE {
        return Ok(());
    }
    Err((None, format!("the probabilities of a row sum to 1, these to {sum}")))
}

/// An importance ratio, clipped at `most` if there is such a limit.
pub fn clipped(ratio: f64, most: Option<f64>) -> f64 {
    most.map_or(ratio, |most| ratio.min(most))
}

impl super::Rows {
    /// How much of a trace flows into row i, before lambda; `rho_max` clips its ratio where that is the answer.
    pub fn carry(&self, i: usize, rho_max: Option<f64>) -> f64 {
        self.carries.get(i).copied().unwrap_or_else(|| self.ratio(i, rho_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_needs_both_probabilities() {
        assert_eq!(ratio(Some(0.5), Some(0.125)), 0.25);
        assert_eq!(ratio(Some(0.5), Some(4.0)), 8.0, "densities may exceed 1");
        assert_eq!((ratio(Some(0.5), None), ratio(None, Some(0.5)), ratio(None, None)), (1.0, 1.0, 1.0));
    }

    #[test]
    fn what_cannot_be_a_probability_is_refused() {
        assert!(check_behavior(1e-300).is_ok() && check_behavior(7.0).is_ok());
        assert!(check_behavior(0.0).unwrap_err().contains("above 0, this one 0"));
        assert!(check_target(0.0, Some(0.5)).is_ok() && check_target(3.0, None).is_ok());
        assert!(check_target(-0.25, None).unwrap_err().contains("this one is -0.25"));
        assert!(check_target(1.0, Some(1e-12)).unwrap_err().contains("1e12, is beyond 1e9"));
        assert!(check_target(f64::MAX, Some(1e-300)).unwrap_err().contains("inf"));
    }

    #[test]
    fn distributions_sum_to_one() {
        assert_eq!(check_distribution(&[0.25, 0.0, 0.75]), Ok(()));
        assert_eq!(check_distribution(&[0.1; 10]), Ok(()), "up to rounding");
        assert_eq!(check_distribution(&[0.5, 0.4999995]), Ok(()));
        assert_eq!(check_distribution(&[0.5, 1.5]).unwrap_err().0, Some(1));
        let (which, message) = check_distribution(&[0.5, 0.25]).unwrap_err();
        assert_eq!((which, message.as_str()), (None, "the probabilities of a row sum to 1, these to 0.75"));
    }
}

//! How sure a sum over rows is, from what stretches of the rows, chains or pieces of these have in it.

/// The sum of what independent parts give, and its standard error; that is no number of a single part.
pub(crate) fn sum_with_error(parts: &[f64]) -> (f64, f64) {
    let (count, sum) = (parts.len() as f64, parts.iter().sum::<f64>());
    let about = parts.iter().map(|part| (part - sum / count).powi(2)).sum::<f64>();
    (sum, (about * count / (count - 1.0)).sqrt())
}

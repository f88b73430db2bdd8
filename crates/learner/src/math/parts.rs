//! The standard error of a sum over rows, from its parts: stretches of the rows, chains or pieces of chains.

/// The sum of independent parts, and its standard error: NaN of a single part.
pub(crate) fn sum_with_error(parts: &[f64]) -> (f64, f64) {
    let (count, sum) = (parts.len() as f64, parts.iter().sum::<f64>());
    let about = parts.iter().map(|part| (part - sum / count).powi(2)).sum::<f64>();
    (sum, (about * count / (count - 1.0)).sqrt())
}

//! The message of a panic that was caught.

use std::any::Any;

/// What a caught panic said; "it panicked" where it said nothing that is text.
pub fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".into())
}

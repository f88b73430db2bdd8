//! The search for hyperparameters.

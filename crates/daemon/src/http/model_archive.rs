//! Earlier models of each critic, which the page compares with the present one.
//!
//! Of each generation the last snapshot is kept, without its variance and its heads: m (D + H) numbers in place of m². The
//! newest [`EACH`] generations of a critic are kept while all together fit into [`BYTES`]; then the oldest goes first. They outlive the
//! daemon in a file of their own, which is written when there is another generation, and at a stop.

use super::looking_back::LookingBack;
use super::what_if::WhatIf;
use crate::sealed::Seal;
use crate::snapshot::Snapshot;
use crate::whole_file;
use crate::wire::{self, ArrayForm};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Generations of a critic, the present one included.
const EACH: usize = 8;
/// Numbers of all of them together.
const BYTES: usize = 16 << 20;

/// The file in the data directory: models as they are published, each behind its length (u32, little endian).
const NAME: &str = "history.models";
const SEAL: Seal = Seal { kind: b"criticd models \n", version: 1 };

/// The models, oldest first.
#[derive(Debug, Default)]
pub(super) struct KeptModels {
    models: VecDeque<(usize, Arc<Snapshot>)>,
    /// Whether there is a generation that the file does not have.
    new: bool,
    /// Models of any moment; none without a journal.
    pub(super) then: Option<LookingBack>,
    /// Plans for other rewards; none before the core is known.
    pub(super) what_if: Option<WhatIf>,
}

impl KeptModels {
    /// Keep the present model of a critic, in place of an older revision of the same generation.
    pub(super) fn note(&mut self, critic: usize, present: &Snapshot) {
        let known = self.models.iter().rposition(|(of, _)| *of == critic);
        let same = known.filter(|&k| self.models[k].1.generation == present.generation);
        if same.is_some_and(|k| self.models[k].1.revision == present.revision) || bytes(present) > BYTES {
            return;
        }
        let model = Arc::new(present.without_variance());
        match same {
            Some(k) => self.models[k].1 = model,
            None => {
                self.models.push_back((critic, model));
                self.new = true;
            }
        }
        while self.of(critic).count() > EACH {
            self.forget(|&(of, _)| of == critic);
        }
        while self.bytes() > BYTES {
            self.forget(|_| true);
        }
    }

    /// Write the models into `directory`, if there is another generation or `anyway`.
    ///
    /// # Errors
    /// If the disk refuses; the file before is then still there.
    pub(super) fn write(&mut self, directory: &Path, anyway: bool) -> io::Result<()> {
        if !self.new && !anyway {
            return Ok(());
        }
        let bytes = SEAL.close(|out| {
            for (_, model) in &self.models {
                let model = wire::encode_values(model, ArrayForm::Tensor, false);
                out.extend((model.len() as u32).to_le_bytes());
                out.extend(model);
            }
        });
        self.new = false;
        whole_file::write(&directory.join(NAME), &directory.join("history.models.new"), 0o600, &bytes)
    }

    /// Begin with the models in `directory`, of the critics of these names: those before the present generation of each.
    ///
    /// # Errors
    /// If the file cannot be read; nothing is kept then.
    pub(super) fn read(&mut self, directory: &Path, critics: &[(&str, u64)]) -> Result<(), Box<dyn std::error::Error>> {
        let bytes = match fs::read(directory.join(NAME)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        let (mut rest, mut models) = (SEAL.open(&bytes)?, VecDeque::new());
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (own, next) =
                behind.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("a model is cut off")?;
            let model = wire::decode_snapshot(own).map_err(|e| e.to_string())?;
            let critic = critics.iter().position(|(name, _)| *name == model.critic);
            if let Some(critic) = critic.filter(|&critic| model.generation < critics[critic].1) {
                models.push_back((critic, Arc::new(model)));
            }
            rest = next;
        }
        self.models = models;
        Ok(())
    }

    /// Forget the oldest of these.
    fn forget(&mut self, which: impl Fn(&(usize, Arc<Snapshot>)) -> bool) {
        let oldest = self.models.iter().position(which);
        oldest.map(|k| self.models.remove(k));
    }

    fn of(&self, critic: usize) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.models.iter().filter(move |(of, _)| *of == critic).map(|(_, model)| model)
    }

    /// Generations of a critic, oldest first.
    pub(super) fn generations(&self, critic: usize) -> Vec<u64> {
        self.of(critic).map(|model| model.generation).collect()
    }

    /// The model of a generation, if it is kept.
    pub(super) fn get(&self, critic: usize, generation: u64) -> Option<Arc<Snapshot>> {
        self.of(critic).find(|model| model.generation == generation).cloned()
    }

    /// Bytes of their numbers.
    pub(super) fn bytes(&self) -> usize {
        self.models.iter().map(|(_, model)| bytes(model)).sum()
    }
}

fn bytes(model: &Snapshot) -> usize {
    let of_mean = model.mean.as_ref().map_or(0, |mean| bytes(mean));
    of_mean + size_of::<f64>() * (model.dictionary.len() + model.weights.len() + 2 * model.dim())
}

#[cfg(test)]
mod tests {
    use super::super::map::tests::model;
    use super::*;
    use nalgebra::DMatrix;

    #[test]
    fn the_last_model_of_each_generation_is_kept_in_bounded_memory() {
        let mut kept = KeptModels::default();
        let of = |m: usize, generation: u64, revision: u64| {
            let (dictionary, weights) = (DMatrix::zeros(m, 3), DMatrix::zeros(m, 2));
            Snapshot { generation, revision, dictionary, weights, ..model(1) }
        };
        for generation in 1..=20 {
            for revision in 0..3 {
                kept.note(0, &of(10, generation, revision));
                kept.note(1, &of(10, 4, revision));
            }
        }
        assert_eq!((kept.generations(0), kept.generations(1)), ((13..=20).collect(), vec![4]));
        let last = kept.get(0, 15).unwrap();
        assert_eq!((last.revision, last.variance.is_none()), (2, true));
        assert_eq!(kept.get(0, 12), None);
        assert_eq!(kept.bytes(), 9 * 8 * (10 * (3 + 2) + 6));

        // Another run finds those before its own generation.
        let directory = tempfile::tempdir().unwrap();
        kept.write(directory.path(), false).unwrap();
        assert!(!kept.new);
        let mut later = KeptModels::default();
        later.read(directory.path(), &[("other", 9), ("c", 18)]).unwrap();
        assert_eq!((later.generations(1), later.bytes()), (vec![4, 13, 14, 15, 16, 17], 6 * 8 * (10 * (3 + 2) + 6)));
        let (found, expected) = (later.get(1, 15).unwrap(), kept.get(0, 15).unwrap());
        assert_eq!((&found.weights, &found.dictionary), (&expected.weights, &expected.dictionary));
        let path = directory.path().join(NAME);
        let mut damaged = fs::read(&path).unwrap();
        damaged[100] ^= 1;
        fs::write(&path, damaged).unwrap();
        let mut none = KeptModels::default();
        assert!(none.read(directory.path(), &[("c", 18)]).is_err() && none.models.is_empty());

        // Large models push older ones out, of any critic; a model that is too large alone is not kept.
        let numbers = BYTES / 8 / 5;
        kept.note(0, &of(numbers * 2, 21, 0));
        assert_eq!(kept.generations(0), (13..=20).collect::<Vec<u64>>());
        kept.note(0, &of(numbers * 3 / 4, 22, 0));
        kept.note(1, &of(numbers * 3 / 4, 5, 0));
        assert!(kept.bytes() <= BYTES);
        assert_eq!((kept.generations(0), kept.generations(1)), (vec![], vec![5]));
    }
}

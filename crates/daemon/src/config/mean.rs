//! The setting `mean` of a critic: what its values are of states without rows nearby.

use super::error::critic_prefix;
use super::setting::{Setting, When, expect, read, written};
use super::{Config, ConfigError};
use crate::learner::Settings;
use crate::learner::mean::{Mean, MeanForm};
use crate::math::kernel::NoiseModel;
use crate::wire::decode_snapshot;
use std::io;
use std::path::Path;

pub(super) const MEAN: Setting<Settings> = Setting {
    key: "mean",
    when: When::Restart,
    help: "Mean function m: what values are of states without rows nearby; the critic learns how they differ from it. A number; \
           { constant = 1.5, weights = [0.5, -2.0] }, one weight for each state variable; or a MODEL file of states, of one reward, \
           such as one of a simulator (docs/mean-functions.md). The journal keeps what the file says: a start without the file goes \
           on with that, and a file that says something else is another setting.",
    get: |settings| settings.mean.as_ref().and_then(|mean| written(mean.form())),
    set: |settings, value| {
        let form: MeanForm = read(value).map_err(|_| FORMS.to_owned())?;
        settings.mean = Some(of_form(form)?);
        Ok(())
    },
    check: |settings| {
        let may = settings.mean.is_none() || settings.may_have_mean();
        expect(
            may,
            "left out where inputs = \"state_action\", which has prior_mean, or there are several rewards: give each reward \
                     a critic of its own",
        )?;
        let correlated = settings.mean.is_none() || settings.noise == NoiseModel::Correlated;
        expect(correlated, "left out where noise = \"white\": leave out noise")
    },
};

const FORMS: &str = "must be a number, { constant = 1.5, weights = [0.5, -2.0] }, or the path of a MODEL file";

/// The mean function of this form. Where there is no such file, it is one that is not known ([`Mean::missing`]).
fn of_form(form: MeanForm) -> Result<Mean, String> {
    let MeanForm::Model(file) = &form else { return Mean::of(form).map_err(|what| format!("must be {what}")) };
    match read_model(Path::new(file)) {
        Ok(mean) => mean,
        Err(_) => Mean::of(form),
    }
}

/// The mean function in a MODEL file; within, why the file is none.
///
/// # Errors
/// It cannot be read.
fn read_model(file: &Path) -> io::Result<Result<Mean, String>> {
    let bytes = std::fs::read(file)?;
    let of = |snapshot| Mean::of_model(file.display().to_string(), &snapshot).map_err(|what| format!("must be {what}"));
    Ok(decode_snapshot(&bytes).map_err(|e| format!("is no MODEL file: {e}")).and_then(of))
}

/// The mean function that an option writes: a number, an inline table as settings have it, or a MODEL file.
///
/// # Errors
/// Why it is none, in words that follow on the option.
pub fn mean_of_option(text: &str) -> Result<Mean, String> {
    let text = text.trim();
    if let Ok(constant) = text.parse() {
        return Mean::of(MeanForm::Constant(constant)).map_err(|what| format!("must be {what}"));
    }
    if text.starts_with('{') {
        let table: toml::Table =
            toml::from_str(&format!("mean = {text}")).map_err(|e| format!("{FORMS}: {}", e.message()))?;
        let form = table["mean"].clone().try_into().map_err(|_| FORMS.to_owned())?;
        return Mean::of(form).map_err(|what| format!("must be {what}"));
    }
    read_model(Path::new(text)).map_err(|e| format!("{text}: {e}"))?.map_err(|why| format!("{text} {why}"))
}

/// What a mean function must be for states (`dim`,), `key` says so; none where it is.
pub(super) fn other_dimension(settings: &Settings, (dim, key): (usize, &str)) -> Option<String> {
    let of = settings.mean.as_ref()?.dim().filter(|&of| of != dim)?;
    Some(format!("must be of states of {dim} numbers, as {key} says: this one is of {of}"))
}

impl Config {
    /// The same with mean functions whose files are not there as the critics of these names have them.
    ///
    /// # Errors
    /// A file is not there, and no critic of that name knows what it said.
    pub fn with_means_of(mut self, known: &[Settings]) -> Result<Self, ConfigError> {
        let count = self.parts.critics.len();
        for (i, critic) in self.parts.critics.iter_mut().enumerate() {
            let Some(file) = critic.mean.as_ref().and_then(Mean::missing) else { continue };
            let same =
                |other: &&Mean| other.missing().is_none() && Some(other.form()) == critic.mean.as_ref().map(Mean::form);
            let of_name = known.iter().filter(|other| other.name == critic.name);
            let found = of_name.filter_map(|other| other.mean.as_ref()).find(same);
            let Some(found) = found.cloned() else {
                let why = std::fs::read(file).err().map_or_else(String::new, |e| format!(" ({e})"));
                let message = format!(
                    "names {file:?}, which cannot be read{why}, and no journal knows what it said: put the file there, or write \
                     its absolute path"
                );
                return Err(ConfigError::invalid(format!("{}mean", critic_prefix(i, count)), None, message));
            };
            critic.mean = Some(found);
        }
        Ok(self)
    }

    /// The same with the mean functions of these critics: what a file says now counts at the next start.
    pub(crate) fn keeping_means_of(mut self, known: &[Settings]) -> Self {
        for critic in &mut self.parts.critics {
            let form = |settings: &Settings| settings.mean.as_ref().map(|mean| mean.form().clone());
            if let Some(same) = known.iter().find(|other| other.name == critic.name && form(other) == form(critic)) {
                critic.mean.clone_from(&same.mean);
            }
        }
        self
    }
}

/// A mean function in words.
pub(crate) fn in_words(mean: Option<&Mean>) -> String {
    let Some(mean) = mean else { return "none".into() };
    let form = written(mean.form()).map_or_else(String::new, |form| form.to_string());
    match mean.form() {
        MeanForm::Model(_) => format!("{form} of checksum {:08x}", crc32fast::hash(format!("{mean:?}").as_bytes())),
        _ => form,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::mean::Linear;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric};
    use crate::snapshot::Snapshot;
    use crate::wire::{ArrayForm, encode_snapshot};
    use nalgebra::DMatrix;

    fn model(rewards: usize, weight: f64) -> Vec<u8> {
        let hyperparameters = Hyperparameters {
            kernel: Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0)),
            noise: NoiseModel::Correlated,
            noise_variance: 1.0,
        };
        let (dictionary, weights) = (DMatrix::zeros(1, 2), DMatrix::from_element(1, rewards, weight));
        encode_snapshot(&Snapshot::of(0.9, hyperparameters, dictionary, weights), ArrayForm::Tensor, false)
    }

    fn critic(mean: &str) -> Result<Config, ConfigError> {
        Config::from_toml(&format!("[[critic]]\nmean = {mean}"))
    }

    #[test]
    fn means_are_printed_as_they_were_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sim.model");
        std::fs::write(&file, model(1, 2.0)).unwrap();
        let text = format!("{:?}", file.display().to_string());
        for (text, at, is) in [
            ("3", [0.0, 0.0], 3.0),
            ("{ weights = [1, -2.5] }", [1.0, 2.0], -4.0),
            ("{ constant = 1.5, weights = [1.0, 0.0] }", [1.0, 2.0], 2.5),
            (&text, [0.0, 0.0], 2.0),
        ] {
            let config = critic(text).unwrap();
            let mean = config.critics[0].mean.clone().unwrap();
            assert!((mean.values(&at, 2)[0] - is).abs() < 1e-12, "{text}");
            assert_eq!(Config::from_toml(&config.print()).unwrap(), config);
        }
        let of_option = mean_of_option("{ constant = 1.5, weights = [1.0, 0.0] }").unwrap();
        assert_eq!(of_option.form(), &MeanForm::Linear(Linear { constant: 1.5, weights: vec![1.0, 0.0] }));
        assert_eq!(mean_of_option("-3.5").unwrap().form(), &MeanForm::Constant(-3.5));
        assert_eq!(mean_of_option(file.to_str().unwrap()).unwrap().dim(), Some(2));
    }

    #[test]
    fn what_is_no_mean_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, bytes: &[u8]| {
            std::fs::write(directory.path().join(name), bytes).unwrap();
            format!("{:?}", directory.path().join(name).display().to_string())
        };
        let (two, none, one) = (path("two", &model(2, 1.0)), path("none", b"no model"), path("one", &model(1, 1.0)));
        for (text, words) in [
            ("nan", "from -1e9 to 1e9"),
            ("1e10", "from -1e9 to 1e9"),
            ("true", "a number"),
            ("{ constant = 1.0 }", "a number"),
            ("{ weights = [] }", "one weight"),
            ("{ weights = [1.0, inf] }", "from -1e9 to 1e9"),
            ("\"/no/such.model\"", "cannot be read"),
            (&two, "one reward: this one has 2"),
            (&none, "is no MODEL file"),
            ("1.0\nrewards = [0, 1]", "a critic of its own"),
            ("1.0\nactions = 2", "prior_mean"),
            ("1.0\nnoise = \"white\"", "leave out noise"),
            (
                &format!("{one}\nstate_kinds = [\"real\", \"real\", \"real\"]"),
                "states of 3 numbers, as state_kinds says",
            ),
        ] {
            let error = critic(text).unwrap_err().to_string();
            assert!(error.contains("`critic.mean`") && error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_gone_says_what_a_critic_of_the_name_knows() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("sim.model");
        std::fs::write(&file, model(1, 2.0)).unwrap();
        let text = format!("[[critic]]\nname = \"a\"\nmean = {:?}\n", file.display().to_string());
        let before = Config::from_toml(&text).unwrap();
        std::fs::remove_file(&file).unwrap();
        let options = crate::config::Options { set: vec![], ..Default::default() };
        let again = || Config::from_toml_and(&text, &options, &|_| None).unwrap();
        assert_eq!(again().critics[0].mean.as_ref().unwrap().missing(), file.to_str());
        assert_eq!(again().with_means_of(&before.critics).unwrap(), before);
        let other = Settings { name: "b".into(), ..before.critics[0].clone() };
        assert!(again().with_means_of(&[other]).unwrap_err().to_string().contains("no journal knows"));
    }
}

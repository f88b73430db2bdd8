//! Every setting: key, meaning, range, and when a change takes effect.

pub(super) use super::setting::{Setting, When};
use super::setting::{expect, named, number_or, one_of, read, word_of, written};
use super::{ConfigParts, Limits, LogFormat, actions, alarms, head_setting, mean};
use crate::access::Allow;
use crate::keys::decode;
use crate::learner::KindSetting;
use crate::learner::{
    DictionaryBy, DriftSensitivity, KernelKind, Lambda, LinearColumns, OnNewPolicy, SelectBy, SelectionKind, Settings,
    VarianceKind,
};
use crate::math::kernel::{NoiseModel, Profile};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

/// A setting that is stored as the file writes it.
macro_rules! setting {
    ($field:ident, $when:ident, $check:expr, $help:literal) => {
        Setting {
            key: stringify!($field),
            when: When::$when,
            help: $help,
            get: |parts| written(&parts.$field),
            set: |parts, value| read(value).map(|value| parts.$field = value),
            check: |parts| $check(&parts.$field),
        }
    };
}

pub(super) use setting;

/// A setting with one word for each of its values.
macro_rules! choice {
    ($field:ident, $when:ident, $words:expr, $help:literal) => {
        choice!(stringify!($field), $field, $when, $words, $help)
    };
    ($key:expr, $field:ident, $when:ident, $words:expr, $help:literal) => {
        Setting {
            key: $key,
            when: When::$when,
            help: $help,
            get: |parts| word_of(&$words, parts.$field),
            set: |parts, value| named(&$words, value).map(|value| parts.$field = value),
            check: |_| Ok(()),
        }
    };
}

/// Former names of settings of a critic, which files, variables and options may still use.
pub(super) const FORMER: [(&str, &str); 2] = [("tune_noise", "estimate_scale"), ("starts", "search_starts")];

pub(super) static GENERAL: [Setting<ConfigParts>; 34] = [
    setting!(data_dir, Restart, directory, "Directory for the daemon's files. The daemon creates it if necessary."),
    setting!(
        ingest,
        Restart,
        endpoint,
        "Endpoint for transitions (PULL): tcp://HOST:PORT, port 0 for any, or ipc://PATH."
    ),
    setting!(control, Restart, endpoint, "Endpoint for requests (ROUTER); forms as above."),
    setting!(publish, Restart, endpoint, "Endpoint for snapshots and events (PUB); forms as above."),
    setting!(
        http,
        Restart,
        |address: &String| match address.as_str() {
            "off" => Ok(()),
            address => expect(is_address(address), "HOST:PORT or off"),
        },
        "Address of the dashboard and the Prometheus metrics: HOST:PORT, port 0 for any, or off."
    ),
    setting!(
        http_hosts,
        Restart,
        |names: &Vec<String>| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
            let name = |name: &String| {
                let rest = name.strip_prefix("*.").unwrap_or(name);
                (1..=253).contains(&rest.len()) && rest.bytes().all(plain)
            };
            expect(names.iter().all(name), "a list of names alone, without ports or schemes")
        },
        "Names of this machine that browsers may use for the dashboard, besides localhost and the address itself; \
         \"*.svc\" stands for all that end in .svc. The \
         daemon refuses other names, so that a foreign page cannot read the dashboard under its own name."
    ),
    setting!(
        insecure,
        Restart,
        anything,
        "Allow the endpoints above to be reachable from other machines. Nothing is encrypted there, and addresses can be \
         forged: anyone on the network path can read and send. Only the addresses under allow may connect."
    ),
    setting!(
        allow,
        Restart,
        |ranges: &Vec<Allow>| {
            let twice = (1..ranges.len()).any(|i| ranges[..i].iter().any(|r| r.addresses == ranges[i].addresses));
            expect(!twice && ranges.len() <= 1024, "at most 1024 ranges, each once")
        },
        "What peers may do, by address: [{ addresses = \"10.0.0.0/8\", rights = [\"append\", \"query\"] }]. The narrowest \
         range counts. Rights are append (send transitions), query (ask, subscribe, see the dashboard) and administer \
         (refit, rebuild, checkpoint); all three by default. Outside all ranges, loopback has all rights and other addresses \
         have none. Peers on unix sockets always have all rights."
    ),
    setting!(
        curve_ingest,
        Restart,
        tcp_endpoint,
        "A further endpoint for transitions, tcp://HOST:PORT, encrypted with CURVE, for clients with keys (a criticd \
         built with --features curve)."
    ),
    setting!(curve_control, Restart, tcp_endpoint, "A further endpoint for requests, as above."),
    setting!(curve_publish, Restart, tcp_endpoint, "A further endpoint for publications, as above."),
    Setting {
        key: "curve_secret_key",
        when: When::Restart,
        help: "File with the daemon's secret key, made by `criticd keys make`. Only its owner may read it (0600).",
        get: |parts| written(&parts.curve_secret_key),
        // Never printed: the value may be the key by mistake.
        set: |parts, value| match read::<PathBuf>(value) {
            Ok(path) if path.to_str().is_none_or(|text| decode(text).is_none()) => {
                parts.curve_secret_key = Some(path);
                Ok(())
            }
            Ok(_) => Err("must be the path of the file with the key, not the key itself".into()),
            Err(_) => Err("must be the path of a file".into()),
        },
        check: |_| Ok(()),
    },
    Setting {
        key: "clients",
        when: When::Restart,
        help: "Clients that may connect with CURVE: [{ name = \"arm\", key = \"(public key, 40 characters)\", rights = \
               [\"append\"] }]. Rights as above; all three by default.",
        get: |parts| written(&parts.clients),
        set: |parts, value| {
            let list = "must be a list of tables with name, key (the public one, in Z85) and perhaps rights (of append, \
                        query, administer)";
            read(value).map(|clients| parts.clients = clients).map_err(|_| list.into())
        },
        check: |parts| {
            let clients = &parts.clients;
            let distinct = (1..clients.len()).all(|i| {
                let others = &clients[..i];
                others.iter().all(|other| other.name != clients[i].name && other.key != clients[i].key)
            });
            expect(clients.iter().all(|client| is_name(&client.name)), "named with 1 to 64 of A-Z a-z 0-9 _ - each")?;
            expect(
                clients.iter().all(|client| decode(&client.key).is_some()),
                "listed with keys of 40 characters in Z85",
            )?;
            expect(distinct, "distinct in name and key")
        },
    },
    setting!(
        log,
        Running,
        |level: &String| match LEVELS.contains(&level.as_str()) {
            true => Ok(()),
            false => Err(one_of(LEVELS.into_iter())),
        },
        "Least severe level that is logged: off, error, warn, info, debug or trace."
    ),
    choice!(
        log_format,
        Restart,
        [("text", LogFormat::Text), ("json", LogFormat::Json)],
        "Form of log lines: \"text\"; or \"json\", one object per line with time, level, event and the other fields."
    ),
    setting!(
        state_dim,
        Restart,
        optional(within(1..=4096)),
        "Numbers in a state, 1 to 4096; by default as many as in the first row."
    ),
    setting!(
        state_names,
        Restart,
        anything,
        "Names of the state variables, a unit in brackets: \"speed [rad/s]\"; as many as state_dim, which must be set too."
    ),
    setting!(
        reward_names,
        Restart,
        |names: &Vec<String>| {
            let fits = |name: &String| (1..=64).contains(&name.chars().count());
            expect(names.iter().all(fits), "a list of names of 1 to 64 characters")
        },
        "Names of the rewards in the order of a row, a unit in brackets: \"energy [J]\". For people alone: they change \
         nothing that is learned."
    ),
    setting!(
        snapshot_interval_ms,
        Running,
        within(10..=3_600_000),
        "Milliseconds between two whole snapshots while rows arrive, 10 to 3600000."
    ),
    setting!(
        publish_bytes_max,
        Restart,
        within(1024..=1 << 30),
        "Bytes of the largest published snapshot, 1024 to 1 GiB. The daemon publishes larger ones without their variance. \
         If that is still too large, it announces them, and clients fetch them from the control socket."
    ),
    setting!(publish_variance, Running, anything, "Whether published snapshots include the variance of V."),
    setting!(
        plot_interval_ms,
        Running,
        optional(within(10..=3_600_000)),
        "Least milliseconds between two publications of plot.<critic>, flat JSON for PlotJuggler and the like, 10 to 3600000; \
         without it there are none."
    ),
    setting!(
        batch_rows_max,
        Restart,
        within(1..=65_536),
        "Most rows that the daemon stores and learns together, 1 to 65536; fewer if learning them takes longer than 10 ms."
    ),
    setting!(
        inbox_messages,
        Restart,
        within(1..=1 << 20),
        "Messages that may wait in the inbox, 1 to 1048576; when it is full, producers wait."
    ),
    setting!(
        window_rows,
        Restart,
        within(16..=100_000_000),
        "Most recent rows kept for refits, 16 to 100 million; each takes 16 bytes per state variable and about 30 more."
    ),
    setting!(
        refit_threads,
        Restart,
        optional(within(1..=256)),
        "Threads of a refit, 1 to 256; by default one for each core except the one that learns, at least one. The result \
         does not depend on it."
    ),
    setting!(streams_max, Restart, within(1..=1 << 24), "Maximum number of streams, 1 to 16777216."),
    setting!(
        streams_idle_rows,
        Restart,
        within(0..=ROWS_MAX),
        "When there are streams_max streams, a new stream replaces the one that has been idle longest, if more than this \
         many rows of other streams have arrived since. A replaced stream that returns is a new stream."
    ),
    setting!(
        journal,
        Restart,
        anything,
        "Whether the daemon stores rows and models in the data directory, so that a restart continues where the last run \
         ended. Without it nothing survives the daemon."
    ),
    setting!(
        sync,
        Restart,
        anything,
        "When rows become durable: \"always\", before they are acknowledged, so that a power cut costs none; \
         \"interval:10ms\", at most that number of milliseconds (1 to 60000) later, so that a power cut costs at most these; \
         \"os\", when the operating system writes them. A crash of the daemon costs no acknowledged row with any of them."
    ),
    setting!(
        journal_rows_max,
        Restart,
        within(1..=ROWS_MAX),
        "Newest rows that the journal keeps; more if the checkpoints or window_rows need them."
    ),
    setting!(
        journal_bytes_max,
        Restart,
        within(1 << 20..=ROWS_MAX),
        "Bytes of the newest records that the journal keeps, from 1 MiB; more if the checkpoints or window_rows need them."
    ),
    setting!(
        checkpoint_rows,
        Restart,
        within(100..=ROWS_MAX),
        "Rows between two checkpoints, from 100. A start replays at most these rows, and those that arrived while the daemon \
         wrote the checkpoint."
    ),
    setting!(
        quarantine_max,
        Restart,
        within(0..=1_000_000),
        "Newest messages that were refused, and that the daemon keeps for `criticd quarantine list`, 0 to 1000000."
    ),
];

pub(super) static LIMITS: [Setting<Limits>; 12] = [
    setting!(message_bytes_max, Restart, within(1024..=1 << 30), "Bytes of one message, 1024 to 1 GiB."),
    setting!(
        frame_bytes_max,
        Restart,
        optional(within(1024..=1 << 30)),
        "Bytes of one frame of a message, 1024 to message_bytes_max, which is the default."
    ),
    setting!(rows_per_batch_max, Restart, within(1..=1 << 20), "Rows of one batch, 1 to 1048576."),
    setting!(query_rows_max, Restart, within(1..=1 << 24), "States of one value request, 1 to 16777216."),
    setting!(parts_max, Restart, within(3..=64), "Frames of one message, 3 to 64."),
    setting!(
        connections_max,
        Restart,
        within(1..=65_536),
        "Connections at a time, to all sockets together, 1 to 65536."
    ),
    setting!(
        connections_per_address_max,
        Restart,
        within(1..=65_536),
        "Connections at a time from one address, to all sockets together, 1 to 65536; all local TCP clients share one."
    ),
    setting!(subscriptions_max, Restart, within(1..=65_536), "Topics that one subscriber may ask for, 1 to 65536."),
    setting!(
        handshake_timeout_ms,
        Restart,
        within(100..=600_000),
        "Milliseconds for the handshake of a new connection, 100 to 600000."
    ),
    setting!(
        stall_timeout_ms,
        Restart,
        within(100..=3_600_000),
        "Milliseconds without a waiting byte accepted after which the daemon disconnects a peer, 100 to 3600000."
    ),
    setting!(
        saturated_timeout_ms,
        Restart,
        within(100..=3_600_000),
        "Milliseconds without an empty queue after which the daemon disconnects a peer, 100 to 3600000."
    ),
    setting!(
        idle_timeout_ms,
        Restart,
        within(100..=7 * 86_400_000),
        "Milliseconds without a byte in either direction after which the daemon closes a connection, 100 to 604800000. \
         Heartbeats count, and ZeroMQ libraries reconnect."
    ),
];

pub(super) static CRITIC: [Setting<Settings>; 47] = [
    setting!(
        name,
        Restart,
        |name: &String| expect(is_name(name), "1 to 64 of A-Z a-z 0-9 _ -"),
        "Name of the critic in requests and topics: 1 to 64 of A-Z a-z 0-9 _ -, distinct."
    ),
    setting!(discount, Restart, within(0.0..=1.0), "Discount of rows without one of their own, 0 to 1."),
    setting!(
        rewards,
        Restart,
        |columns: &Vec<usize>| {
            let distinct = (1..columns.len()).all(|i| !columns[..i].contains(&columns[i]));
            expect(
                !columns.is_empty() && distinct && columns.iter().all(|&c| c < 4096),
                "distinct columns, 0 to 4095, at least one",
            )
        },
        "Reward columns that the critic learns, counted from 0: one value function each, one kernel for all."
    ),
    choice!(
        kernel,
        Restart,
        [
            ("ard", KernelKind::Ard),
            ("isotropic", KernelKind::Isotropic),
            ("factor", KernelKind::Factor(None)),
            ("auto", KernelKind::Auto),
        ],
        "Kernel (covariance function): \"ard\", a lengthscale for each state variable, and, where held-out returns are \
         predicted better so, directions across three or more of them; \"isotropic\", one for all; \
         \"factor\", lengthscales and directions across variables; or \"auto\", whichever of these the data support, \
         without irrelevant variables, which takes longer."
    ),
    choice!(
        "kernel_profile",
        profile,
        Restart,
        [("gaussian", Profile::Gaussian), ("matern52", Profile::Matern52)],
        "Decay of the kernel with distance: \"matern52\", for value functions with kinks, from which a refit goes over to \
         the Gaussian where held-out returns are predicted better so; or \"gaussian\", for smooth ones."
    ),
    choice!(
        linear_columns,
        Restart,
        [("auto", LinearColumns::Auto), ("never", LinearColumns::Never), ("always", LinearColumns::Always)],
        "A constant and linear columns beside the kernel, with which values go on where no row has been: \"auto\", where \
         held-out returns are predicted better with them and no actions are improved; \"never\"; or \"always\". Selection by \
         evidence has none."
    ),
    setting!(
        state_kinds,
        Restart,
        |kinds: &Vec<KindSetting>| expect(kinds.len() <= 4096, "one for each state variable, at most 4096"),
        "Kind of each state variable, one word for each; empty if all are \"real\", or bent by refits where they are far from \
         normal. \"periodic:P\" repeats after P, in the unit of the state (6.283185307179586 for an angle in radians); of \"periodic\" alone refits learn the period, and \
         until they find one it is \"real\". \"asinh:C:S:W\" enters as W asinh((x - C) / S). Two values of a \"category\" are equal or different, never near."
    ),
    mean::MEAN,
    actions::INPUTS,
    actions::ACTIONS,
    actions::SUCCESSOR,
    actions::TRACE,
    actions::IMPROVE_ROWS,
    actions::PRIOR_MEAN,
    actions::WORLD,
    choice!(
        noise,
        Restart,
        [("correlated", NoiseModel::Correlated), ("white", NoiseModel::White)],
        "Noise: \"correlated\", independent noise of returns; or \"white\", independent noise of rewards, which is right \
         only for deterministic transitions, and always selects by evidence with lambda = 1."
    ),
    choice!(
        variance,
        Restart,
        [("rows", VarianceKind::Rows), ("model", VarianceKind::Model), ("clustered", VarianceKind::Clustered)],
        "Variance of V: \"rows\", from the temporal-difference error of each row, right if the state contains all that \
         matters; \"clustered\", from pieces of chains, if the state may hide something; or \"model\", of the \
         Gaussian process, which is too small if transitions are noisy."
    ),
    Setting {
        key: "lambda",
        when: When::Restart,
        help: "lambda of the lambda-returns: from 0, one reward and the value of the next state, to 1, whole returns. \
               \"auto\" is 0.8 until the first refit, and then the choice of the refits.",
        get: |settings| {
            Some(match settings.lambda {
                Lambda::Auto => toml::Value::from("auto"),
                Lambda::Fixed(lambda) => toml::Value::from(lambda),
            })
        },
        set: |settings, value| {
            let fixed = number_or("auto", "a number from 0 to 1", value)?;
            settings.lambda = fixed.map_or(Lambda::Auto, Lambda::Fixed);
            Ok(())
        },
        check: |settings| match settings.lambda {
            Lambda::Fixed(lambda) => within(0.0..=1.0)(&lambda),
            Lambda::Auto => Ok(()),
        },
    },
    Setting {
        key: "rho_max",
        when: When::Restart,
        help: "Largest importance ratio, above 0; inf for no limit. A row with target_prob and behavior_prob has the weight \
               target_prob / behavior_prob, clipped at this limit; other rows have the weight 1.",
        get: |settings| Some(toml::Value::from(settings.rho_max.unwrap_or(f64::INFINITY))),
        set: |settings, value| {
            read(value).map(|most| settings.rho_max = Some(most).filter(|&most| most != f64::INFINITY))
        },
        check: |settings| expect(settings.rho_max.is_none_or(|most| most > 0.0), "above 0"),
    },
    Setting {
        key: "forgetting",
        when: When::Restart,
        help: "For a world that drifts slowly: half-life of a row's weight in rows of all streams, at least 1. Refits use \
               the last 8 half-lives. \"off\" gives all rows the same weight. With a half-life the critic learns rows one \
               by one, and each refresh of the weights (refresh_rows) solves the whole system.",
        get: |settings| Some(settings.forgetting.map_or_else(|| toml::Value::from("off"), toml::Value::from)),
        set: |settings, value| {
            let rows = number_or("off", "a number of rows, at least 1,", value)?;
            settings.forgetting = rows.filter(|&rows| rows != f64::INFINITY);
            Ok(())
        },
        check: |settings| settings.forgetting.as_ref().map_or(Ok(()), within(1.0..=1e15)),
    },
    choice!(
        on_new_policy,
        Running,
        [("restart", OnNewPolicy::Restart), ("discount", OnNewPolicy::Discount), ("keep", OnNewPolicy::Keep)],
        "Effect of another policy (announced by the key `policy` of rows, or by `criticd new-policy`): \"discount\" lets \
         earlier rows count less (policy_discount); \"restart\" keeps kernel and dictionary and forgets all rows, and the \
         model before answers until warmup_rows have come; \"keep\" keeps one model for each policy name, which continues \
         when the policy returns. What a refit selects serves the next policy too."
    ),
    Setting {
        key: "policy_discount",
        when: When::Running,
        help: "With on_new_policy = \"discount\": factor on the weight of earlier rows, above 0, at most 1. \"auto\" lets \
               all of them together count as 512 rows at most, so that policies may change as often as they like; refits \
               then use the rows since the change, and where those are fewer than four times refit_first_rows, that number of \
               the newest ones.",
        get: |settings| Some(settings.policy_discount.map_or_else(|| toml::Value::from("auto"), toml::Value::from)),
        set: |settings, value| {
            settings.policy_discount = number_or("auto", "a number above 0, at most 1,", value)?;
            Ok(())
        },
        check: |settings| {
            expect(settings.policy_discount.is_none_or(|factor| factor > 0.0 && factor <= 1.0), "above 0, at most 1")
        },
    },
    setting!(
        policies_kept,
        Running,
        within(0..=64),
        "With on_new_policy = \"keep\": most models kept beside the one in use, 0 to 64; each takes as much memory."
    ),
    choice!(
        selection,
        Restart,
        [("returns", SelectionKind::Returns), ("evidence", SelectionKind::Evidence)],
        "How refits select: \"returns\", kernel, lambda and ridge (noise variance over kernel variance) together, by their \
         prediction of held-out returns; or \"evidence\", kernel and noise by the marginal likelihood, with lambda = 1 \
         unless one is given."
    ),
    setting!(
        tolerance,
        Restart,
        |&value: &f64| expect(value > 0.0 && value < 1.0, "between 0 and 1"),
        "A state enters the dictionary when the states in it leave more than this share of the kernel's variance \
         unexplained there, between 0 and 1. Refits may make it finer."
    ),
    setting!(
        dictionary_max,
        Restart,
        within(1..=20_000),
        "Largest dictionary, 1 to 20000; a row costs time and memory by its square."
    ),
    Setting {
        check: |settings| {
            let fits = settings.takes_rules() || matches!(settings.dictionary_by, None | Some(DictionaryBy::Icd));
            expect(fits, "auto or icd: other rules are for values of states and correlated noise")
        },
        ..choice!(
            dictionary_by,
            Running,
            [
                ("auto", None),
                ("icd", Some(DictionaryBy::Icd)),
                ("returns", Some(DictionaryBy::Returns)),
                ("omp-td", Some(DictionaryBy::OmpTd)),
                ("omp-brm", Some(DictionaryBy::OmpBrm)),
            ],
            "Rule that chooses the dictionary of a refit: \"icd\" (pivoted incomplete Cholesky), which covers the states; \"returns\", \
             half of it by the returns of values and heads; \"omp-td\" or \"omp-brm\", by the reward one row ahead; or \"auto\", icd, \
             unless it fills the dictionary with a trace gap above 5 nats and returns predict later returns better by more than the standard error."
        )
    },
    setting!(
        dictionary_beta,
        Running,
        within(0.0..=1e9),
        "With \"omp-td\" and \"omp-brm\": correlation with what is left of the reward at or below which no further element is chosen, \
         0 to 1e9. With dictionary_unit_norm it is in the unit of the reward."
    ),
    setting!(
        dictionary_unit_norm,
        Running,
        anything,
        "With \"omp-td\" and \"omp-brm\": whether candidates are divided by their root mean square over the rows before they are compared."
    ),
    setting!(
        backfill_rows,
        Restart,
        within(0..=1_000_000),
        "Recent rows from which the critic learns a new dictionary state at once, 0 to 1000000 and not more than \
         window_rows or 1024; earlier rows reach it at the next refit."
    ),
    setting!(
        refresh_rows,
        Restart,
        within(1..=65_536),
        "Rows between two refreshes of the weights that score incoming rows, and the largest block of rows, 1 to 65536."
    ),
    setting!(
        estimate_scale,
        Running,
        anything,
        "Whether the daemon re-estimates the scale of values from new rows; with selection = \"evidence\" also the noise."
    ),
    setting!(
        noise_floor,
        Restart,
        |&value: &f64| expect(value > 0.0 && value <= 1.0, "above 0, at most 1"),
        "Smallest noise variance, as a share of the variance of the targets, above 0, at most 1; lower it only for \
         deterministic streams."
    ),
    setting!(warmup_rows, Restart, within(2..=1_000_000), "Rows before the first model, 2 to 1000000."),
    setting!(
        refit_first_rows,
        Running,
        within(0..=ROWS_MAX),
        "Rows at which the first refit is due, or an eighth of them one second after the first model; 0 for refits on \
         request only."
    ),
    setting!(
        refit_growth,
        Running,
        within(1.0..=1e6),
        "Factor by which the number of rows grows from one refit to the next, 1 to 1e6."
    ),
    setting!(refit_rows_max, Running, within(1..=ROWS_MAX), "Most rows between two refits, at least 1."),
    setting!(
        refit_score_drop,
        Running,
        within(0.0..=1e6),
        "A refit is due when the log score of predicted rewards falls by more than this below its best, nats per row, 0 to \
         1e6; 0 switches this off."
    ),
    choice!(
        drift_sensitivity,
        Running,
        [
            ("normal", DriftSensitivity::Normal),
            ("low", DriftSensitivity::Low),
            ("high", DriftSensitivity::High),
            ("off", DriftSensitivity::Off),
        ],
        "Sensitivity of the alarm for a change of the world (another policy, other rewards, worn gears), after which a \
         second model learns: \"normal\", at most one false alarm in a million rows if the state contains all that \
         matters; \"high\", sooner; \"low\", later and surer; or \"off\", never."
    ),
    Setting {
        key: "alarm",
        when: When::Running,
        help: "An alarm before it fails: { below = -10.0, false_alarms = 0.01 } is on where the return from a row will probably fall below \
               -10. Of the rows whose return stays above, the alarm is on at the share false_alarms, 0.001 to 0.5 (0.01 if left out), in \
               the long run also while the world drifts. A list of at most 16 has alarms of heads too: { head = \"energy\", below = 3.0 }; \
               without head it is about the first of the rewards. docs/drift.md explains it.",
        get: alarms::written,
        set: |settings, value| alarms::read(value).map(|alarms| settings.alarms = alarms),
        check: alarms::check,
    },
    choice!(
        evidence,
        Running,
        [("auto", SelectBy::Auto), ("exact", SelectBy::Exact), ("sparse", SelectBy::Sparse)],
        "With selection = \"evidence\": \"exact\", the evidence of evidence_rows rows; \"sparse\", the variational \
         bound of all rows through a dictionary; or \"auto\", first the exact evidence, then, if there are more rows, \
         the bound."
    ),
    setting!(
        evidence_rows,
        Running,
        within(2..=20_000),
        "With selection = \"evidence\": rows of the exact evidence, 2 to 20000; its time grows with their cube."
    ),
    setting!(
        search_starts,
        Running,
        within(1..=1000),
        "With selection = \"evidence\": starts of the optimiser in each refit, 1 to 1000."
    ),
    setting!(
        refit_budget_s,
        Running,
        within(0.01..=86_400.0),
        "Budget of one refit, 0.01 to 86400: the work that one core does in about this number of seconds, counted in operations, so that neither other work \
         on the machine nor the number of threads decides what is found. The search may use seven tenths, and with `world` the choice of kernels for it \
         three."
    ),
    setting!(seed, Restart, within(0..=ROWS_MAX), "Seed of the random numbers in refits, from 0."),
    Setting {
        key: "heads",
        when: When::Restart,
        help: "Predictions that the critic learns besides its values, with the same kernel and dictionary, at most 65536: [{ name = \
           \"contact\", cumulant = { kind = \"event\", index = 3, above = 0.5 }, timescale = 2.0 }]. A cumulant is of kind \
           reward, state, next_state or action (with index), constant (with value), event (index, above or below), or expression (text, such as \
           \"reward - 0.1*action[0]^2\"). A head has a \
           discount (0 to 1; the critic's if left out) or a timescale (seconds, from the times of rows), and perhaps terminal_reward, continuation, \
           weight, noise_variance and signal; docs/heads.md explains them.",
        get: head_setting::written,
        set: |settings, value| head_setting::read(value).map(|heads| settings.heads = heads),
        check: |settings| head_setting::check(settings, None),
    },
    choice!(
        heads_split,
        Running,
        [("auto", true), ("never", false)],
        "With heads: \"auto\", refits give some of them a kernel and a dictionary of their own where that gains at least 0.02 nats \
         for each row and head, which may double the time for a row and the memory; or \"never\"."
    ),
];

/// Largest integer that a TOML file can hold.
const ROWS_MAX: u64 = i64::MAX as u64;

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

fn anything<T>(_: &T) -> Result<(), String> {
    Ok(())
}

fn within<T: PartialOrd + Display>(range: RangeInclusive<T>) -> impl Fn(&T) -> Result<(), String> {
    move |value| expect(range.contains(value), &format!("from {} to {}, is {value}", range.start(), range.end()))
}

fn optional<T>(check: impl Fn(&T) -> Result<(), String>) -> impl Fn(&Option<T>) -> Result<(), String> {
    move |value| value.as_ref().map_or(Ok(()), &check)
}

fn directory(path: &Path) -> Result<(), String> {
    let named = path.to_str().is_some_and(|text| !text.is_empty());
    expect(named, "a path in UTF-8")
}

pub(super) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

/// Host of a `tcp://HOST:PORT` endpoint, None for `ipc://PATH`.
pub(super) fn host(endpoint: &str) -> Result<Option<&str>, String> {
    const FORMS: &str = "must be tcp://HOST:PORT or ipc://PATH";
    if let Some(path) = endpoint.strip_prefix("ipc://") {
        return if path.is_empty() { Err(FORMS.into()) } else { Ok(None) };
    }
    let (host, port) = endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or(FORMS)?;
    port.parse::<u16>().map_err(|_| format!("has a port that is no number from 0 to 65535: {port:?}"))?;
    if host.is_empty() || host.contains(['/', ' ']) {
        return Err(FORMS.into());
    }
    Ok(Some(host))
}

/// Whether it has the form HOST:PORT.
fn is_address(address: &str) -> bool {
    !address.contains('/') && host(&format!("tcp://{address}")).is_ok()
}

fn endpoint(endpoint: &str) -> Result<(), String> {
    host(endpoint).map(drop)
}

fn tcp_endpoint(endpoint: &Option<String>) -> Result<(), String> {
    expect(endpoint.as_deref().is_none_or(|text| matches!(host(text), Ok(Some(_)))), "tcp://HOST:PORT")
}

//! The protocol of `criticd` and a client of it, without the daemon.
//!
//! - [`wire`]: the messages: read with checks, written, and the status as a type. proto/README.md describes them.
//! - [`client`]: send experience, ask, follow published models; for programs that block.
//! - [`policy`]: ask a policy in another process what it does.
//! - [`endpoint`], [`rights`]: where a socket is reached, and what a peer may do there.
//! - [`sockets`]: the ZeroMQ sockets under the client.
//!
//! Models and transitions are types of `criticd_learner`: a program that has received a model evaluates it on its own.
//!
//! ```no_run
//! use criticd_learner::snapshot::Ask;
//! use criticd_protocol::client::{Models, Subscriber};
//! use std::time::Duration;
//!
//! let patience = Duration::from_secs(5);
//! let subscriber = Subscriber::connect("tcp://127.0.0.1:5752", &["snapshot.main", "weights.main"], patience)?;
//! let mut models = Models::default();
//! while let Some((topic, payload)) = subscriber.receive(patience)? {
//!     models.apply(&topic, &payload)?;
//!     if let Some(model) = models.get("main") {
//!         let found = model.evaluate(&[0.3, -1.0], Ask::VARIANCE).expect("a state of two finite numbers");
//!         println!("V = {} after {} rows", found.mean[(0, 0)], model.offset);
//!     }
//! }
//! # Ok::<(), criticd_protocol::client::ClientError>(())
//! ```
pub mod client;
pub mod endpoint;
pub mod policy;
pub mod rights;
pub mod sockets;
pub mod wire;

#[doc(hidden)]
pub use criticd_learner::named;

//! What a page asks a model of the transition: its questions as a browser writes them, and as a peer's requests.

use super::row_buffer::Recent;
use crate::wire::{self, Op, WireError, encode_request};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// For which reward to plan, as the page asks for it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct PlanQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// As a peer writes it; the critic's own if left out.
    pub(super) reward: Option<String>,
    pub(super) discount: Option<f64>,
}

/// As requests have it: what is no number is refused there, where JSON would have none.
fn written(number: f64) -> Value {
    if number.is_finite() { json!(number) } else { json!(number.to_string()) }
}

impl PlanQuery {
    /// The plan that `discount:reward` names; of what is empty the critic's own.
    pub(super) fn named(text: &str) -> Option<Self> {
        let (discount, reward) = text.split_once(':')?;
        let discount = if discount.is_empty() { None } else { Some(discount.parse().ok()?) };
        Some(Self { critic: None, reward: (!reward.is_empty()).then(|| reward.to_owned()), discount })
    }

    /// The question about this critic.
    pub(super) fn asking(&self, critic: &str) -> Asking {
        let fields = json!({"critic": critic, "reward": self.reward, "discount": self.discount.map(written)});
        Asking::new("plan", fields)
    }
}

/// Where a policy leads, as the page asks for it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct CourseQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// As a peer writes them.
    policy: Option<String>,
    reward: Option<String>,
    discount: Option<f64>,
    steps: Option<u64>,
    /// What is shown, one expression a line.
    show: Option<String>,
    /// (D,) where it begins, separated by commas.
    at: Option<String>,
    /// The row in whose state it begins, by its offset.
    row: Option<u64>,
}

impl CourseQuery {
    /// The question about this critic, and what came where it begins in a row.
    ///
    /// # Errors
    /// A sentence that names what is wrong.
    pub(super) fn asking(&self, critic: &str, recent: &Recent) -> Result<(Asking, Option<Followers>), String> {
        let came = match self.row {
            Some(row) => Some(Followers::of(recent, row).ok_or_else(|| format!("row {row} is no longer kept"))?),
            None => None,
        };
        let numbers = |text: &String| text.split(',').map(|number| number.trim().parse::<f64>().ok()).collect();
        let at: Option<Option<Vec<f64>>> = self.at.as_ref().map(numbers);
        let at = at.map(|numbers| numbers.ok_or("at must be numbers separated by commas")).transpose()?;
        let start = came.as_ref().map(|came| came.states[0].clone()).or(at);
        let fields = json!({
            "critic": critic,
            "policy": self.policy,
            "reward": self.reward,
            "discount": self.discount.map(written),
            "steps": self.steps,
            "show": self.show.as_ref().map(|text| text.lines().collect::<Vec<_>>()),
            "states": start.map(|start| vec![start]),
        });
        Ok((Asking::new("rollout", fields), came))
    }
}

/// The state of a row, and those that followed it in its episode.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Followers {
    pub(super) states: Vec<Vec<f64>>,
    /// Whether the episode terminated behind the last of them.
    pub(super) terminated: bool,
}

impl Followers {
    /// None of a row that is not kept.
    fn of(recent: &Recent, row: u64) -> Option<Self> {
        let rows = recent.rows()?;
        let first = usize::try_from(row.checked_sub(recent.offset(0))?).ok().filter(|&i| i < rows.len())?;
        let mut came = Self { states: vec![rows.state(first).to_vec()], terminated: false };
        for i in (first..rows.len()).filter(|&i| rows.streams[i] == rows.streams[first]) {
            if came.states.len() > wire::STEPS_MAX || (i > first && rows.starts_chain[i]) {
                break;
            }
            came.states.push(rows.next_state(i).to_vec());
            came.terminated = rows.terminated[i];
            if rows.terminated[i] || rows.truncated[i] {
                break;
            }
        }
        Some(came)
    }
}

/// A request, and what it takes beside its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asking {
    op: &'static str,
    fields: Map<String, Value>,
}

impl Asking {
    fn new(op: &'static str, fields: Value) -> Self {
        let Value::Object(mut fields) = fields else { unreachable!("an object") };
        fields.retain(|_, value| !value.is_null());
        Self { op, fields }
    }

    /// The request as it is read from a peer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(&self, limits: &wire::Limits) -> Result<Op, WireError> {
        let request = encode_request(0, self.op, &self.fields);
        wire::decode_request(&request, limits).map(|request| request.op).map_err(|refused| refused.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::window::Window;
    use crate::monitor::testing::{Row, push};

    #[test]
    fn a_plan_is_named_by_discount_and_reward() {
        let named = PlanQuery::named("0.9:-abs(x):2").unwrap();
        assert_eq!((named.reward.as_deref(), named.discount), (Some("-abs(x):2"), Some(0.9)));
        assert_eq!(PlanQuery::named(":"), Some(PlanQuery::default()));
        assert!(PlanQuery::named("x:1").is_none() && PlanQuery::named("").is_none());
    }

    #[test]
    fn a_course_begins_at_a_place_or_in_a_row_whose_successors_are_known() {
        let (mut recent, mut window) = (Recent::default(), Window::new(1, 1, 100));
        let row = |stream, starts, state, terminated| Row { stream, starts, state, reward: 0.0, terminated };
        for (stream, starts, state, terminated) in [
            (0, true, 0.25, false),
            (1, true, 0.5, false),
            (0, false, 0.75, false),
            (0, false, 1.0, true),
            (0, true, 2.0, false),
        ] {
            push(&mut window, &row(stream, starts, state, terminated));
        }
        recent.take(&window, &[], 0.0);
        let course = |query: CourseQuery| query.asking("q", &recent);
        let (asking, came) = course(CourseQuery { row: Some(0), steps: Some(3), ..CourseQuery::default() }).unwrap();
        // A row leads to its own state here.
        let states = [0.25, 0.25, 0.75, 1.0].map(|v| vec![v]).to_vec();
        assert_eq!(came, Some(Followers { states, terminated: true }));
        assert_eq!(Value::Object(asking.fields), json!({"critic": "q", "states": [[0.25]], "steps": 3}));
        let (_, came) = course(CourseQuery { row: Some(4), ..CourseQuery::default() }).unwrap();
        assert_eq!(came, Some(Followers { states: vec![vec![2.0]; 2], terminated: false }));
        let there = CourseQuery { at: Some("1, -2".into()), show: Some("x\nabs(x)".into()), ..CourseQuery::default() };
        let (asking, came) = course(there).unwrap();
        assert_eq!(
            (&asking.fields["states"], &asking.fields["show"]),
            (&json!([[1.0, -2.0]]), &json!(["x", "abs(x)"]))
        );
        assert!(came.is_none());
        assert!(course(CourseQuery { row: Some(5), ..CourseQuery::default() }).unwrap_err().contains("row 5"));
        assert!(course(CourseQuery { at: Some("1,x".into()), ..CourseQuery::default() }).is_err());
    }
}

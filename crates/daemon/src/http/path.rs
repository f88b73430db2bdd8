//! The value along the trajectory of one stream: what the model says of its last states, and what then came.
//!
//! The last rows come one by one, the last minutes in stops that each stand for some rows ([`super::tails`]).

use super::row_buffer::Recent;
use super::trajectories::Tail;
use crate::hindsight::{Along, Followed, Rewards, Single, Stretch, has_returns};
use crate::monitor::number;
use crate::snapshot::{Ask, Evaluator};
use crate::transition::Rows;
use serde::Deserialize;
use serde_json::{Value, json};

/// States at which the model is evaluated, and products for all of them, about: a variance costs the square of the dictionary.
const POINTS: usize = 400;
const PRODUCTS: usize = 20_000_000;
/// Rows that may be looked back on.
const ROWS_MAX: usize = 4000;
/// Rows that an automatic span has about, its seconds at least and at most, and rows that are enough of it.
const AUTOMATIC_ROWS: f64 = 800.0;
const AUTOMATIC_S: [f64; 2] = [3.0, 60.0];
const AUTOMATIC_ENOUGH: usize = 400;
/// Rows that are shown automatically, and whose places are joined by lines, at least, beside the last whole episodes.
const LINE_ROWS: usize = 60;
const LINE_EPISODES: usize = 2;
/// Of more rows than there may be points some are left out.
const LINE_POINTS: usize = 1000;

/// Whose rows are wanted, as the page asks for them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct PathQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// Which of its value functions, counted from 0.
    #[serde(default)]
    pub(super) head: usize,
    /// Name of the stream. If it is left out: `follow`, while that sends rows; else the stream of the newest row.
    pub(super) stream: Option<String>,
    /// The stream that was shown last.
    pub(super) follow: Option<String>,
    /// How many of its rows, at most.
    pub(super) rows: usize,
    /// The last seconds to show in place of a number of rows, as far as it is known when rows came.
    pub(super) seconds: Option<f64>,
    /// The seconds that some hundred rows take.
    #[serde(default)]
    pub(super) automatic: bool,
    /// Up to the row of this offset; the newest if left out.
    pub(super) until: Option<u64>,
    /// Rows of the stream behind that one to show as well.
    #[serde(default)]
    pub(super) behind: usize,
    /// State variables whose values are wanted.
    pub(super) x: usize,
    pub(super) y: Option<usize>,
}

/// A row of the answer, or some rows that follow each other.
struct PathPoint<'a> {
    /// Of its first row.
    offset: u64,
    /// Unix seconds; none where rows are counted.
    time: Option<f64>,
    /// Mean reward.
    reward: f64,
    stretch: Stretch<'a>,
    starts: bool,
    /// 1: terminated; 2: truncated; 0: neither.
    end: u8,
}

/// What is shown of a stream.
struct Shown<'a> {
    places: Vec<PathPoint<'a>>,
    /// Rows that they stand for.
    rows: usize,
}

/// The answer: a JSON document with a list for each column, oldest row first. Lists are thinned where there are many rows.
///
/// # Errors
/// A sentence that names what is wrong.
pub(super) fn along(
    query: &PathQuery,
    recent: &Recent,
    model: &Evaluator,
    rewards: &Rewards,
) -> Result<String, String> {
    let snapshot = model.snapshot();
    let rows = recent
        .rows()
        .filter(|rows| rows.dim == snapshot.state_dim())
        .ok_or("no rows of this critic's states are kept")?;
    let axes: Vec<usize> = std::iter::once(query.x).chain(query.y).collect();
    if axes.iter().any(|&axis| axis >= rows.dim) {
        return Err(format!("x and y must be two of the {} state variables, counted from 0", rows.dim));
    }
    let column = rewards.column(query.head)?;
    let stream = followed_stream(query, recent, rows)?;
    let m = snapshot.dictionary.nrows().max(1);
    let points = (PRODUCTS / (m * m)).clamp(40, POINTS);
    let tail = recent.tails().of(stream);
    let seconds = if query.automatic { tail.map(automatic_span) } else { query.seconds };
    // A stop of several rows has no action.
    let stops = seconds.zip(tail).filter(|_| snapshot.actions.is_none());
    let minutes = stops.and_then(|(seconds, tail)| {
        let sum = recent.tails().sum(rewards.discount, column);
        of_stops(query, tail, (seconds, points), (sum, column))
    });
    let single = Single::of(rows, snapshot, rewards, column);
    let own: Vec<usize> = (0..rows.len()).filter(|&i| rows.streams[i] == stream && single.is_known(i)).collect();
    // Rows one by one are closer than stops, each of which may stand for hundreds.
    let close = seconds.filter(|_| query.automatic).and_then(|seconds| timed_rows(query, recent, &own, seconds));
    let enough =
        |count: &usize| *count >= AUTOMATIC_ENOUGH || minutes.as_ref().is_none_or(|other| *count >= other.rows);
    let close = close.filter(|count| *count > 1 && enough(count));
    let timed = close.is_some() || minutes.is_some();
    let of_rows = |count: usize| {
        let count = if query.automatic { count.min(last_episodes(query, rows, &own)) } else { count };
        of_rows(query, recent, (rows, &single), &own, (column, count), points)
    };
    let Shown { places, rows: count } = match close {
        Some(count) => of_rows(count),
        None => minutes.unwrap_or_else(|| of_rows(query.rows.clamp(1, ROWS_MAX))),
    };
    let stretches: Vec<&Stretch> = places.iter().map(|of| &of.stretch).collect();
    let found = Along::of(&stretches, (model, Ask::ALL), rewards, query.head)?;
    let list = |f: &dyn Fn(usize) -> f64| (0..places.len()).map(|k| number(f(k))).collect::<Vec<Value>>();
    let column = |values: &[f64]| values.iter().copied().map(number).collect::<Vec<Value>>();
    let place = |of: &PathPoint| axes.iter().map(|&axis| number(of.stretch.state[axis])).collect::<Vec<Value>>();
    let newest = places.last().and_then(|of| of.time).unwrap_or(0.0);
    let seconds = |k: usize| places[k].time.map_or(f64::NAN, |time| time - newest);
    Ok(json!({
        "critic": snapshot.critic,
        "generation": snapshot.generation,
        "stream": recent.name(stream),
        "rows": count,
        "every": count.div_ceil(places.len().max(1)).max(1),
        "returns": has_returns(rewards.successor),
        "last_terminated": last_terminated(recent, rows, stream),
        "seconds": timed.then(|| list(&seconds)),
        "lines": lines(query, recent, (rows, &own), tail, (&axes, count)),
        "offset": places.iter().map(|of| of.offset).collect::<Vec<u64>>(),
        "at": places.iter().map(place).collect::<Vec<_>>(),
        "starts": places.iter().map(|of| u8::from(of.starts)).collect::<Vec<_>>(),
        "end": places.iter().map(|of| of.end).collect::<Vec<_>>(),
        "reward": list(&|k| places[k].reward),
        "value": column(&found.value),
        "deviation": column(&found.deviation),
        "return_deviation": column(&found.return_deviation),
        "realised": column(&found.realised),
        "td": column(&found.difference),
    })
    .to_string())
}

/// The stream that is meant: one that falls silent is no longer followed, one that is named always.
fn followed_stream(query: &PathQuery, recent: &Recent, rows: &Rows) -> Result<u32, String> {
    if let Some(name) = &query.stream {
        return recent.number(name).ok_or_else(|| format!("stream: \"{name}\" is none of the last"));
    }
    let newest = *rows.streams.last().ok_or("there are no rows yet")?;
    let before = query.follow.as_deref().and_then(|name| recent.tails().number(name));
    let speaks = |stream: &u32| recent.tails().of(*stream).is_some_and(|tail| !recent.tails().is_silent(tail));
    Ok(before.filter(speaks).unwrap_or(newest))
}

/// Offset of the last row of a stream that ended in a terminal state, of those that are kept.
fn last_terminated(recent: &Recent, rows: &Rows, stream: u32) -> Option<u64> {
    let row = (0..rows.len()).rev().find(|&i| rows.streams[i] == stream && rows.terminated[i]);
    let stops = || recent.tails().of(stream)?.stops.iter().rev().find(|stop| stop.terminated);
    row.map(|i| recent.offset(i)).or_else(|| Some(stops()?.last))
}

/// Seconds that some hundred rows of a stream take at its present rate.
fn automatic_span(tail: &Tail) -> f64 {
    let [least, most] = AUTOMATIC_S;
    tail.rate(most).map_or(most, |rate| (AUTOMATIC_ROWS / rate).clamp(least, most))
}

/// How many of the rows `own` are shown at the end: up to the one that is looked back on, and those behind it.
fn shown_end(query: &PathQuery, recent: &Recent, own: &[usize]) -> usize {
    let upto = |until| own.partition_point(|&i| recent.offset(i) <= until) + query.behind;
    query.until.map_or(own.len(), upto).min(own.len())
}

/// How many of the rows `own` are shown if the rows of some seconds are wanted: seconds before the newest, or before the one
/// that is looked back on. None where that one is not kept, or nothing says when it came.
fn timed_rows(query: &PathQuery, recent: &Recent, own: &[usize], seconds: f64) -> Option<usize> {
    let upto = query.until.map_or(own.len(), |until| own.partition_point(|&i| recent.offset(i) <= until));
    let last = recent.time(recent.offset(*own[..upto].last()?))?;
    // Rows of before the first notice have no time, and come first.
    let is_before = |&i: &usize| recent.time(recent.offset(i)).is_none_or(|time| time < last - seconds);
    Some(shown_end(query, recent, own) - own.partition_point(is_before))
}

/// The first of the last two whole episodes among the rows `own`; their number where there is none.
fn whole_episodes(rows: &Rows, own: &[usize]) -> usize {
    let ends = |i: usize| rows.terminated[i] || rows.truncated[i];
    let mut wanted = LINE_EPISODES;
    let mut first = own.len();
    let mut whole = false;
    for (k, &i) in own.iter().enumerate().rev() {
        whole |= ends(i);
        if whole && (rows.starts_chain[i] || k > 0 && ends(own[k - 1])) {
            first = k;
            wanted -= 1;
            whole = false;
            if wanted == 0 {
                break;
            }
        }
    }
    first
}

/// How many of the rows `own` the last whole episodes take, with what has begun since; all where there is no whole one, or where a row
/// is looked back on.
fn last_episodes(query: &PathQuery, rows: &Rows, own: &[usize]) -> usize {
    match whole_episodes(rows, own) {
        first if first < own.len() && query.until.is_none() => (own.len() - first).max(LINE_ROWS),
        _ => own.len(),
    }
}

/// The `count` rows of a stream that are shown and the last whole episodes, those that are kept one by one: unbroken lines of places on the
/// axes, thinned where there are many.
fn lines(
    query: &PathQuery,
    recent: &Recent,
    (rows, own): (&Rows, &[usize]),
    tail: Option<&Tail>,
    (axes, count): (&[usize], usize),
) -> Vec<Vec<Vec<Value>>> {
    let mut lines: Vec<Vec<Vec<Value>>> = vec![Vec::new()];
    let mut add = |state: &[f64], starts: bool, ends: bool| {
        let place = axes.iter().map(|&axis| number(state[axis])).collect();
        if starts {
            lines.push(Vec::new());
        }
        lines.last_mut().expect("there is one from the start").push(place);
        if ends {
            lines.push(Vec::new());
        }
    };
    let end = shown_end(query, recent, own);
    let is_kept = query.until.is_none_or(|until| own.first().is_some_and(|&i| recent.offset(i) <= until));
    if end > 1 && is_kept {
        let ends = |i: usize| rows.terminated[i] || rows.truncated[i];
        let from = end.saturating_sub(count.max(LINE_ROWS)).min(whole_episodes(rows, &own[..end]));
        let shown = &own[from..end];
        let edge = |k: usize| k + 1 == shown.len() || ends(shown[k]) || rows.starts_chain[shown[k]];
        for k in thinned(shown.len(), (LINE_POINTS, None), edge) {
            add(rows.state(shown[k]), rows.starts_chain[shown[k]], ends(shown[k]));
        }
    } else if let Some(tail) = tail {
        // A stop of several rows is no place beside the next one.
        let upto = |until| tail.stops.partition_point(|stop| stop.first <= until);
        let end = query.until.map_or(tail.stops.len(), upto);
        let single = tail
            .stops
            .range(..end)
            .rev()
            .take(count.clamp(LINE_ROWS, LINE_POINTS))
            .take_while(|stop| stop.rows == 1)
            .count();
        for stop in tail.stops.range(end - single..end) {
            add(&stop.state, stop.starts, stop.terminated || stop.truncated);
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// The last `count` rows of a stream, one by one.
fn of_rows<'a>(
    query: &PathQuery,
    recent: &Recent,
    (rows, single): (&'a Rows, &Single<'a>),
    own: &[usize],
    (column, count): (usize, usize),
    points: usize,
) -> Shown<'a> {
    let end = shown_end(query, recent, own);
    let own = &own[end.saturating_sub(count)..end];
    let end = |i: usize| u8::from(rows.terminated[i]) + 2 * u8::from(rows.truncated[i] && !rows.terminated[i]);
    let asked = query.until.map(|until| own.partition_point(|&i| recent.offset(i) <= until));
    let shown = thinned(own.len(), (points, asked), |k| end(own[k]) > 0 || rows.starts_chain[own[k]]);
    let place = |k: usize| {
        let i = own[k];
        PathPoint {
            offset: recent.offset(i),
            time: recent.time(recent.offset(i)),
            reward: rows.reward(i)[column],
            stretch: single.row(i),
            starts: rows.starts_chain[i],
            end: end(i),
        }
    };
    Shown { places: shown.into_iter().map(place).collect(), rows: own.len() }
}

/// The last seconds of a stream; none where that are fewer rows than are known without their times.
fn of_stops<'a>(
    query: &PathQuery,
    tail: &'a Tail,
    (seconds, points): (f64, usize),
    (sum, column): (Option<usize>, usize),
) -> Option<Shown<'a>> {
    let stops = &tail.stops;
    let mut end = query.until.map_or(stops.len(), |until| stops.partition_point(|stop| stop.first <= until));
    if end == 0 {
        return None;
    }
    let last = stops[end - 1].time;
    let mut behind = query.until.map_or(0, |_| query.behind);
    while behind > 0 && end < stops.len() {
        behind = behind.saturating_sub(stops[end].rows as usize);
        end += 1;
    }
    let first = stops.partition_point(|stop| stop.time < last - seconds);
    let rows: usize = stops.range(first..end).map(|stop| stop.rows as usize).sum();
    if end - first < 2 || (tail.untimed && first == 0 && rows < query.rows) {
        return None;
    }
    let end_of = |k: usize| u8::from(stops[k].terminated) + 2 * u8::from(stops[k].truncated && !stops[k].terminated);
    let asked = query.until.map(|until| stops.partition_point(|stop| stop.first <= until).saturating_sub(first));
    let shown = thinned(end - first, (points, asked), |k| end_of(first + k) > 0 || stops[first + k].starts);
    let followed = sum.map(|sum| tail.followed(sum));
    let place = |k: usize| {
        let stop = &stops[first + k];
        let followed = followed.as_ref().map(|list| list[first + k]);
        let [gathered, weight] = sum.map_or([f64::NAN; 2], |sum| stop.sums[sum]);
        PathPoint {
            offset: stop.first,
            time: Some(stop.time),
            reward: stop.rewards[column] / f64::from(stop.rows),
            stretch: Stretch {
                state: &stop.state,
                next: &stop.next,
                gathered,
                weight,
                followed,
                tail: &stops[followed.and_then(Followed::tail).unwrap_or(first + k)].next,
                actions: [None; 3],
            },
            starts: stop.starts,
            end: end_of(first + k),
        }
    };
    Some(Shown { places: shown.into_iter().map(place).collect(), rows })
}

/// At most about `points` of `count` numbers from 0: evenly spread, every one that is an edge as far as there is room, and the one before
/// `asked`.
fn thinned(count: usize, (points, asked): (usize, Option<usize>), edge: impl Fn(usize) -> bool) -> Vec<usize> {
    let every = count.div_ceil(points).max(1);
    let keeps_edges = (0..count).filter(|&k| edge(k)).count() <= points;
    let kept = |k: usize| k.is_multiple_of(every) || keeps_edges && edge(k) || asked == Some(k + 1);
    (0..count).filter(|&k| kept(k)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::window::Window;
    use crate::monitor::testing::{Row, model, push};

    #[test]
    fn a_trajectory_has_its_values_and_the_returns_that_followed() {
        let model = model(0);
        let mut window = Window::new(1, 1, 1000);
        for i in 0..6 {
            let (stream, starts, terminated) = (u32::from(i % 3 == 2), i <= 2, i == 4);
            push(&mut window, &Row { stream, starts, state: 0.1 * f64::from(i), reward: f64::from(i), terminated });
        }
        let mut recent = Recent::default();
        recent.take(&window, &[(0, "a".into()), (1, "b".into())], 1.0);
        let rewards = Rewards { discount: 0.5, columns: vec![0], successor: None };
        let ask = |query: PathQuery| -> Result<Value, String> {
            along(&query, &recent, &model, &rewards).map(|text| serde_json::from_str(&text).unwrap())
        };
        let of = |stream: &str| PathQuery { stream: Some(stream.into()), rows: 100, ..PathQuery::default() };
        let found = ask(of("a")).unwrap();
        assert_eq!((&found["offset"], &found["end"]), (&json!([0, 1, 3, 4]), &json!([0, 0, 0, 1])));
        assert_eq!((&found["starts"], &found["reward"]), (&json!([1, 1, 0, 0]), &json!([0.0, 1.0, 3.0, 4.0])));
        // The first row is cut by a new chain; those behind it end with a reward of 4.
        assert_eq!(found["realised"], json!([null, 3.5, 5.0, 4.0]));
        let near = |value: &Value, expected: f64| assert!((value.as_f64().unwrap() - expected).abs() < 1e-3, "{value}");
        near(&found["value"][2], 10.0);
        near(&found["td"][1], 1.0 + 5.0 - 10.0);
        near(&found["td"][3], 4.0 - 10.0);
        near(&found["at"][3][0], 0.4);
        // The newest row is of stream b; rows behind `until` and beyond `rows` are left out.
        assert_eq!(ask(PathQuery { rows: 9, ..PathQuery::default() }).unwrap()["stream"], "b");
        assert_eq!(ask(PathQuery { until: Some(3), rows: 2, ..of("a") }).unwrap()["offset"], json!([1, 3]));
        // Rows behind it are of its own stream.
        let behind = PathQuery { until: Some(1), behind: 1, rows: 9, ..of("a") };
        assert_eq!(ask(behind).unwrap()["offset"], json!([0, 1, 3]));
        assert_eq!((&found["last_terminated"], &found["seconds"]), (&json!(4), &Value::Null));
        assert!(ask(of("c")).unwrap_err().starts_with("stream"));
        assert!(ask(PathQuery { x: 1, ..of("a") }).unwrap_err().starts_with("x and y"));
        assert!(ask(PathQuery { head: 1, ..of("a") }).unwrap_err().starts_with("head"));
    }

    #[test]
    fn the_last_minutes_of_a_stream_are_shown_by_time_until_it_falls_silent() {
        let (model, rewards) = (model(0), Rewards { discount: 0.5, columns: vec![0], successor: None });
        let mut recent = Recent::new(std::slice::from_ref(&rewards));
        let mut window = Window::new(1, 1, 100_000);
        let names = [(0, "a".to_owned()), (1, "b".to_owned())];
        let row =
            |stream, i: u32, terminated| Row { stream, starts: i == 0, state: f64::from(i), reward: 1.0, terminated };
        recent.take(&window, &names, 0.0);
        // Stream a: twenty rows a second, of which every hundredth terminates; b: one at the end of each second.
        for second in 0..120 {
            for i in 0..20 {
                push(&mut window, &row(0, second * 20 + i, (second * 20 + i) % 100 == 99));
            }
            push(&mut window, &row(1, second, false));
            recent.take(&window.from_offset(recent.end()), &names, f64::from(second + 1));
        }
        let ask = |recent: &Recent, query: PathQuery| -> Value {
            serde_json::from_str(&along(&query, recent, &model, &rewards).unwrap()).unwrap()
        };
        let minute = PathQuery { seconds: Some(60.0), rows: 400, ..PathQuery::default() };
        let found = ask(&recent, PathQuery { follow: Some("a".into()), ..minute.clone() });
        assert!(found["stream"] == "a" && [1200, 1201].contains(&found["rows"].as_u64().unwrap()), "{}", found["rows"]);
        let seconds: Vec<f64> = found["seconds"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert!(seconds[0] < -59.0 && seconds.is_sorted() && *seconds.last().unwrap() > -0.2, "{seconds:?}");
        // Of a whole minute of rewards of 1 the returns are 2, wherever nothing terminates soon.
        let two =
            found["realised"].as_array().unwrap().iter().filter(|v| (v.as_f64().unwrap_or(0.0) - 2.0).abs() < 0.1);
        assert!(two.count() > 200);
        assert_eq!(found["last_terminated"], json!(119 * 21 + 19));
        // Back from there: the last row of a minute that has it and two rows behind it, of which b's are none.
        let back = PathQuery { stream: Some("a".into()), until: Some(60 * 21), behind: 2, ..minute.clone() };
        let offsets = ask(&recent, back)["offset"].as_array().unwrap().len();
        assert!(offsets > 100, "{offsets}");
        // When a falls silent, the newest stream is shown.
        for second in 120..135 {
            push(&mut window, &row(1, second, false));
            recent.take(&window.from_offset(recent.end()), &names, f64::from(second + 1));
            let shown = ask(&recent, PathQuery { follow: Some("a".into()), ..minute.clone() });
            assert_eq!(shown["stream"], if second < 130 { "a" } else { "b" }, "{second}");
        }
        assert_eq!(ask(&recent, PathQuery { stream: Some("a".into()), ..minute.clone() })["stream"], "a");

        // After a start rows are counted, until that number of rows has times.
        let (mut recent, mut window) = (Recent::new(std::slice::from_ref(&rewards)), Window::new(1, 1, 1000));
        for (second, rows) in [50u32, 5, 400].into_iter().enumerate() {
            (0..rows).for_each(|i| push(&mut window, &row(0, i + second as u32, false)));
            recent.take(&window, &names, second as f64);
            let shown = ask(&recent, minute.clone());
            let expected = [(50, true), (55, true), (405, false)][second];
            assert_eq!((shown["rows"].as_u64().unwrap(), shown["seconds"].is_null()), expected);
            let back = ask(&recent, PathQuery { until: Some(20), behind: 10, ..minute.clone() });
            assert_eq!((back["rows"].as_u64().unwrap(), back["seconds"].is_null()), (31, true));
        }
    }

    #[test]
    fn an_automatic_span_follows_the_rate_and_lines_join_rows_that_follow_each_other() {
        let (model, rewards) = (model(0), Rewards { discount: 0.5, columns: vec![0], successor: None });
        let names = [(0, "fast".to_owned()), (1, "slow".to_owned())];
        let mut recent = Recent::new(std::slice::from_ref(&rewards));
        let mut window = Window::new(1, 1, 400_000);
        recent.take(&window, &names, 0.0);
        // For two minutes: one stream with 1200 rows a second, one with 5; states count the rows of a stream.
        let (mut fast, mut slow) = (0, 0);
        for second in 1..=120 {
            for i in 0..1205 {
                let stream = u32::from(i % 241 == 240);
                let count = if stream == 0 { &mut fast } else { &mut slow };
                let starts = *count == 0;
                push(&mut window, &Row { stream, starts, state: f64::from(*count), reward: 1.0, terminated: false });
                *count += 1;
            }
            recent.take(&window.from_offset(recent.end()), &names, f64::from(second));
        }
        let ask = |query: PathQuery| -> Value {
            serde_json::from_str(&along(&query, &recent, &model, &rewards).unwrap()).unwrap()
        };
        let of =
            |name: &str| PathQuery { stream: Some(name.into()), rows: 400, automatic: true, ..PathQuery::default() };
        let [fast, slow] = ["fast", "slow"].map(|name| ask(of(name)));
        let span = |found: &Value| -found["seconds"][0].as_f64().unwrap();
        assert!((2.8..=3.1).contains(&span(&fast)), "{}", span(&fast));
        assert!((3400..=3700).contains(&fast["rows"].as_u64().unwrap()) && fast["every"].as_u64().unwrap() <= 10);
        assert!((58.0..=60.5).contains(&span(&slow)) && slow["every"] == 1, "{} {}", span(&slow), slow["every"]);
        // The last rows that are kept one by one are of all streams.
        for found in [&fast, &slow] {
            let lines = found["lines"].as_array().unwrap();
            let line: Vec<f64> = lines[0].as_array().unwrap().iter().map(|at| at[0].as_f64().unwrap()).collect();
            // All rows of the span, of the slow one as far as they are kept.
            let of_slow = recent.rows().unwrap().streams.iter().filter(|stream| **stream == 1).count() as f64;
            let kept = if found == &fast { fast["rows"].as_f64().unwrap() } else { of_slow };
            let every = (kept / LINE_POINTS as f64).ceil();
            assert_eq!(lines.len(), 1);
            assert!((line[line.len() - 1] - line[0] + 1.0 - kept).abs() < 1.0, "{} {kept}", line.len());
            assert!(line.len() <= LINE_POINTS + 1 && line.windows(2).all(|two| two[1] - two[0] <= every), "{line:?}");
        }
        // A minute is a minute, however many rows it has; lines join those that are kept.
        let minute = ask(PathQuery { automatic: false, seconds: Some(60.0), ..of("fast") });
        assert!(span(&minute) > 55.0 && minute["every"].as_u64().unwrap() > 100);
        let line = minute["lines"][0].as_array().unwrap();
        assert!(line.len() <= LINE_POINTS + 1 && line.last() == fast["lines"][0].as_array().unwrap().last());
        // Looking back, lines are as they were then; of rows that are no longer kept one by one there are none.
        let line_end = |found: &Value| found["lines"][0].as_array().unwrap().last().unwrap()[0].as_f64().unwrap();
        let end = ask(PathQuery { until: Some(1205 * 118 - 1), ..of("fast") });
        assert!((line_end(&end) - 1200.0 * 118.0).abs() < 2.0);
        assert_eq!(ask(PathQuery { until: Some(1205 * 30), ..of("fast") })["lines"], json!([]));
    }

    #[test]
    fn long_trajectories_are_thinned_and_keep_where_episodes_end() {
        let mut window = Window::new(1, 1, 100_000);
        for i in 0..3000 {
            push(
                &mut window,
                &Row { stream: 0, starts: i % 97 == 0, state: 0.0, reward: 0.0, terminated: i % 97 == 96 },
            );
        }
        let rows = window.flatten();
        // Two whole episodes, and the begun one; of an endless stream there are none.
        let own: Vec<usize> = (0..rows.len()).collect();
        assert_eq!(whole_episodes(&rows, &own), 97 * 28);
        assert_eq!(whole_episodes(&rows, &own[..97 * 5]), 97 * 3);
        assert_eq!((whole_episodes(&rows, &own[..97 + 96]), whole_episodes(&rows, &own[..90])), (0, 90));
        // They are what is shown automatically, unless a row is looked back on.
        let back = PathQuery { until: Some(2000), ..PathQuery::default() };
        let shown = |query: &PathQuery, rows_own: &[usize]| last_episodes(query, &rows, rows_own);
        assert_eq!(shown(&PathQuery::default(), &own), 3000 - 97 * 28);
        assert_eq!((shown(&back, &own), shown(&PathQuery::default(), &own[..90])), (3000, 90));
        let shown =
            thinned(rows.len(), (400, Some(1234)), |i| rows.terminated[i] || rows.truncated[i] || rows.starts_chain[i]);
        assert!((375..=375 + 63).contains(&shown.len()) && shown.contains(&1233), "{}", shown.len());
        assert!((0..3000).filter(|i| i % 97 == 96).all(|i| shown.contains(&i)));
    }
}

//! A throw at a target on the ground: one decision for each distance, and its cost.
//!
//! ```text
//! lands at v cos(a) / g (v sin(a) + sqrt(v^2 sin(a)^2 + 2 g h))        h = 1 m, g = 9.81 m/s^2
//! cost = miss^2 + 0.0003 v^2                                             m^2; v in m/s
//! ```
//! Angle a and speed v are limited to the range of an arm. Only the distance of the target is random.

use criticd_learner::random::{mix, uniform};

/// Nearest and farthest target, m.
pub const DISTANCES: [f64; 2] = [2.0, 7.0];
/// The throw without experience: angle in rad, speed in m/s.
pub const UNTRAINED: [f64; 2] = [0.8, 6.0];
/// Deviation of its exploration, in the same units.
pub const EXPLORATION: [f64; 2] = [0.2, 1.5];

const GRAVITY: f64 = 9.81;
const HEIGHT: f64 = 1.0;
const ANGLES: [f64; 2] = [0.0, 1.4];
const SPEEDS: [f64; 2] = [0.5, 15.0];
const EFFORT: f64 = 0.0003;

/// The outcome of a throw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrowOutcome {
    /// Distance between where it landed and the target, m, at least 0.
    pub miss: f64,
    /// m^2.
    pub cost: f64,
}

/// Distance of target number `number` of a run, m, uniform.
pub fn target(seed: u64, number: u64) -> f64 {
    DISTANCES[0] + (DISTANCES[1] - DISTANCES[0]) * uniform(mix(&[seed, number]))
}

/// Throw with this angle, rad, and speed, m/s, at a target `distance` m away.
pub fn throw(distance: f64, [angle, speed]: [f64; 2]) -> ThrowOutcome {
    let (angle, speed) = (angle.clamp(ANGLES[0], ANGLES[1]), speed.clamp(SPEEDS[0], SPEEDS[1]));
    let (along, up) = (speed * angle.cos(), speed * angle.sin());
    let landed = along / GRAVITY * (up + (up * up + 2.0 * GRAVITY * HEIGHT).sqrt());
    let miss = (landed - distance).abs();
    ThrowOutcome { miss, cost: miss * miss + EFFORT * speed * speed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same flight in small steps of time.
    fn flown([angle, speed]: [f64; 2]) -> f64 {
        let (dt, mut x, mut y, mut up) = (1e-5, 0.0, HEIGHT, speed * angle.sin());
        while y > 0.0 {
            x += dt * speed * angle.cos();
            y += dt * up;
            up -= dt * GRAVITY;
        }
        x
    }

    #[test]
    fn it_lands_where_it_flies() {
        for decision in [UNTRAINED, [0.0, 3.0], [1.2, 9.0]] {
            assert!(throw(flown(decision), decision).miss < 1e-3, "{decision:?}");
        }
        assert_eq!(throw(3.0, [2.0, 99.0]), throw(3.0, [1.4, 15.0]), "an arm has its limits");
        assert!(throw(0.0, [0.0, 0.0]).cost > throw(0.0, [0.0, 0.0]).miss.powi(2), "speed costs");
    }

    #[test]
    fn targets_lie_where_they_may() {
        let distances: Vec<f64> = (0..1000).map(|k| target(1, k)).collect();
        assert!(distances.iter().all(|d| (DISTANCES[0]..DISTANCES[1]).contains(d)));
        assert!(distances.iter().any(|d| *d < 2.1) && distances.iter().any(|d| *d > 6.9));
        assert_ne!(target(1, 0), target(2, 0));
    }
}

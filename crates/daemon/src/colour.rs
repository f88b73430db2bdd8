//! Colour maps in which equal steps of a value look equal: built in Oklab, lightness rising evenly from end to end.
//!
//! Rising lightness keeps order for every kind of colour vision and in grey print; the hue only adds contrast.

/// A colour in Oklab: lightness in [0, 1], green to red, blue to yellow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Oklab {
    l: f64,
    a: f64,
    b: f64,
}

impl Oklab {
    const fn grey(l: f64) -> Self {
        Self { l, a: 0.0, b: 0.0 }
    }

    /// From lightness, chroma and hue in degrees.
    fn polar([l, chroma, hue]: [f64; 3]) -> Self {
        let (sin, cos) = hue.to_radians().sin_cos();
        Self { l, a: chroma * cos, b: chroma * sin }
    }

    /// The colour `t` of the way to `other`.
    pub fn towards(self, other: Self, t: f64) -> Self {
        let mix = |x: f64, y: f64| x + t * (y - x);
        Self { l: mix(self.l, other.l), a: mix(self.a, other.a), b: mix(self.b, other.b) }
    }

    /// Red, green and blue in linear light; outside [0, 1] where the screen cannot show the colour.
    fn linear(self) -> [f64; 3] {
        let Self { l, a, b } = self;
        let long = (l + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
        let medium = (l - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
        let short = (l - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
        [
            4.076_741_662_1 * long - 3.307_711_591_3 * medium + 0.230_969_929_2 * short,
            -1.268_438_004_6 * long + 2.609_757_401_1 * medium - 0.341_319_396_5 * short,
            -0.004_196_086_3 * long - 0.703_418_614_7 * medium + 1.707_614_701_0 * short,
        ]
    }

    /// sRGB, clipped to what a screen can show.
    pub fn srgb(self) -> [u8; 3] {
        self.linear().map(|v| {
            let v = v.clamp(0.0, 1.0);
            let encoded = if v <= 0.003_130_8 { 12.92 * v } else { 1.055 * v.powf(1.0 / 2.4) - 0.055 };
            (255.0 * encoded).round() as u8
        })
    }
}

/// What uncertain parts of a picture fade to.
pub const PALE: Oklab = Oklab::grey(0.985);
/// Lines over what is not known.
pub const HATCH: Oklab = Oklab::grey(0.55);
/// The same below curves, which must stay in front.
pub const GROUND: Oklab = Oklab::grey(0.82);
/// Amount of fading from which a place is hatched.
pub const HATCHED: f64 = 0.5;

/// Whether a place, in pixels, lies on a line of the hatching.
pub fn is_hatch(across: f64, up: f64) -> bool {
    (across + up).rem_euclid(9.0) < 1.6
}

/// Where there is no number to show.
pub const ABSENT: Oklab = Oklab::grey(0.8);

/// Which colour map a heat map uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colours {
    /// Violet, blue, green, yellow: for values.
    #[default]
    Value,
    /// Near black, purple, orange, cream: for standard deviations.
    Deviation,
    /// Blue, near white, orange: for differences, over a range around zero.
    Difference,
}

impl Colours {
    /// Anchors (lightness, chroma, hue in degrees), evenly spaced in the value and in lightness.
    fn anchors(self) -> &'static [[f64; 3]] {
        match self {
            Self::Value => &[
                [0.240, 0.100, 300.0],
                [0.374, 0.130, 280.0],
                [0.508, 0.108, 240.0],
                [0.642, 0.104, 185.0],
                [0.776, 0.165, 142.0],
                [0.910, 0.180, 105.0],
            ],
            Self::Deviation => &[
                [0.200, 0.040, 290.0],
                [0.385, 0.140, 310.0],
                [0.570, 0.190, 357.0],
                [0.755, 0.140, 52.0],
                [0.940, 0.060, 95.0],
            ],
            Self::Difference => &[
                [0.360, 0.120, 262.0],
                [0.560, 0.140, 255.0],
                [0.770, 0.080, 250.0],
                [0.970, 0.000, 150.0],
                [0.770, 0.100, 60.0],
                [0.560, 0.140, 45.0],
                [0.360, 0.095, 38.0],
            ],
        }
    }

    /// Red, green and blue (sRGB) at `t` in \[0, 1\], from low to high.
    pub fn rgb(self, t: f64) -> [u8; 3] {
        self.at(t).srgb()
    }

    /// The colour at `t` in [0, 1], from low to high; `t` outside is taken as the nearer end.
    pub fn at(self, t: f64) -> Oklab {
        let anchors = self.anchors();
        let place = t.clamp(0.0, 1.0) * (anchors.len() - 1) as f64;
        let k = (place as usize).min(anchors.len() - 2);
        Oklab::polar(anchors[k]).towards(Oklab::polar(anchors[k + 1]), place - k as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lightness_rises_evenly_within_what_a_screen_shows() {
        for map in [Colours::Value, Colours::Deviation] {
            let (low, high) = (map.at(0.0).l, map.at(1.0).l);
            for k in 0..=100 {
                let t = f64::from(k) / 100.0;
                let colour = map.at(t);
                assert!((colour.l - (low + t * (high - low))).abs() < 1e-9, "{map:?} at {t}");
                assert!(colour.linear().iter().all(|v| (-0.002..1.002).contains(v)), "{map:?} at {t}: {colour:?}");
            }
        }
    }

    #[test]
    fn differences_are_as_dark_as_they_are_large_on_either_side() {
        for k in 0..=100 {
            let t = f64::from(k) / 100.0;
            let (low, high) = (Colours::Difference.at(0.5 - 0.5 * t), Colours::Difference.at(0.5 + 0.5 * t));
            assert!((low.l - high.l).abs() < 1e-9, "{t}");
            assert!(k == 0 || low.l < Colours::Difference.at(0.5).l);
            for colour in [low, high] {
                assert!(colour.linear().iter().all(|v| (-0.002..1.002).contains(v)), "{t}: {colour:?}");
            }
        }
        assert_eq!(Colours::Difference.at(0.5).srgb(), Oklab::grey(0.97).srgb());
    }

    #[test]
    fn greys_and_known_colours_convert() {
        assert_eq!(Oklab::grey(1.0).srgb(), [255, 255, 255]);
        assert_eq!(Oklab::grey(0.0).srgb(), [0, 0, 0]);
        // Pure red is L 0.62796, a 0.22486, b 0.12585.
        assert_eq!(Oklab { l: 0.627_96, a: 0.224_86, b: 0.125_85 }.srgb(), [255, 0, 0]);
    }
}

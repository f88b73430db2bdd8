//! Pictures of value functions: heat maps, curves and bars side by side in one PNG or SVG file.
//!
//! Unvisited states show the prior mean, which for costs looks better than anything visited. So a heat map can fade where
//! the standard deviation is high, and is hatched where next to nothing is known.
//!
//! ```no_run
//! use criticd::picture::{Axis, Figure, Heatmap, Panel};
//!
//! let (x, y) = (Axis::new("position [m]", -1.0, 1.0), Axis::new("speed [m/s]", -2.0, 2.0));
//! let values = Heatmap::centres(&x, &y, 100, 100).iter().map(|[x, v]| -x * x - 0.1 * v * v).collect();
//! let map = Heatmap::new("Value", x, y, 100, values, "value [J]");
//! Figure { panels: vec![Panel::Heatmap(map)] }.write_png("value.png".as_ref())?;
//! # Ok::<(), std::io::Error>(())
//! ```

mod bar;
mod bars;
mod curves;
mod legend;
mod surface;
mod ticks;
mod title;

pub use crate::colour::Colours;

use crate::colour::{ABSENT, HATCH, HATCHED, Oklab, PALE, is_hatch};
use crate::whole_file::OutputFile;
use legend::Key;
use std::io;
use std::path::Path;
use surface::{Clip, Surface};
use ticks::Ticks;
use tiny_skia::{PathBuilder, Rect, StrokeDash, Transform};
use title::SUBTITLE_ROW;

/// Panels, each 700 pixels wide and 600 high.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// From left to right, at least one.
    pub panels: Vec<Panel>,
}

/// One part of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Panel {
    /// A function of two variables.
    Heatmap(Heatmap),
    /// Functions of one variable.
    Curves(Curves),
    /// A number for each of a few names.
    Bars(Bars),
}

/// An axis: what it shows and from where to where.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name and unit, as in `angle φ [rad]`.
    pub label: String,
    /// Lower and upper end, finite and in this order.
    pub range: [f64; 2],
    /// How places on the axis follow from numbers, and where its ticks are.
    pub scale: Scale,
}

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Proportional, with decimal ticks.
    #[default]
    Linear,
    /// Proportional, with ticks at fractions or multiples of π.
    Pi,
    /// Logarithmic, with ticks at powers of ten; for positive numbers.
    Log,
}

impl Scale {
    /// The number that places are proportional to: the logarithm to base ten, or the number itself.
    fn place(self, value: f64) -> f64 {
        if self == Self::Log { value.log10() } else { value }
    }

    /// About `count` ticks within `range`; as many as fit where they count in π.
    fn ticks(self, range: [f64; 2], count: usize) -> Ticks {
        assert_extent(range);
        match self {
            Self::Linear => ticks::decimal(range, count),
            Self::Pi => ticks::in_pi(range),
            Self::Log => {
                assert!(range[0] > 0.0, "a logarithmic axis is for positive numbers, not from {}", range[0]);
                ticks::powers(range, count)
            }
        }
    }
}

impl Axis {
    /// An axis with decimal ticks.
    pub fn new(label: impl Into<String>, low: f64, high: f64) -> Self {
        Self { label: label.into(), range: [low, high], scale: Scale::Linear }
    }

    /// An axis for angles in rad, with ticks at fractions or multiples of π.
    pub fn angle(label: impl Into<String>, low: f64, high: f64) -> Self {
        Self { scale: Scale::Pi, ..Self::new(label, low, high) }
    }

    /// A logarithmic axis for positive numbers, with ticks at powers of ten. Heat maps have none.
    pub fn log(label: impl Into<String>, low: f64, high: f64) -> Self {
        Self { scale: Scale::Log, ..Self::new(label, low, high) }
    }

    /// Centre of cell `k` of `count`.
    fn centre(&self, k: usize, count: usize) -> f64 {
        let [low, high] = self.range;
        low + (high - low) * (k as f64 + 0.5) / count as f64
    }

    /// About `count` ticks; as many as fit where they count in π.
    fn ticks(&self, count: usize) -> Ticks {
        self.scale.ticks(self.range, count)
    }
}

/// A function of two variables, in colour.
#[derive(Clone, Debug, PartialEq)]
pub struct Heatmap {
    /// Above the picture. What follows a line break stands below it in smaller letters, in all lines that it takes.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Cells in x; those in y follow from the number of values.
    pub columns: usize,
    /// (rows, columns), row-major from the lowest y up, at [`Heatmap::centres`]; NaN shows as grey.
    pub values: Vec<f64>,
    /// Name and unit of the values, next to the colour bar.
    pub value_label: String,
    /// What the ends of the colour bar stand for; none: the least and the greatest value.
    pub value_range: Option<[f64; 2]>,
    /// Whether there is a colour bar; one is enough for maps side by side that have one range.
    pub bar: bool,
    /// Colour map.
    pub colours: Colours,
    /// Whether to interpolate between cells; without, each cell is a rectangle.
    pub smooth: bool,
    /// Where to show pale colours, if anywhere.
    pub fade: Option<Fade>,
    /// Drawn on top, in this order. Points outside the axes are left out.
    pub points: Vec<Points>,
}

impl Heatmap {
    /// A smooth map in the colours for values, over the range of its values, with nothing on top.
    pub fn new(
        title: impl Into<String>,
        x: Axis,
        y: Axis,
        columns: usize,
        values: Vec<f64>,
        value_label: impl Into<String>,
    ) -> Self {
        Self {
            title: title.into(),
            x,
            y,
            columns,
            values,
            value_label: value_label.into(),
            value_range: None,
            bar: true,
            colours: Colours::Value,
            smooth: true,
            fade: None,
            points: Vec::new(),
        }
    }

    /// Centres (x, y) of the cells of a map, in the order of its values: where to evaluate the function.
    pub fn centres(x: &Axis, y: &Axis, columns: usize, rows: usize) -> Vec<[f64; 2]> {
        (0..rows * columns).map(|k| [x.centre(k % columns, columns), y.centre(k / columns, rows)]).collect()
    }
}

/// How much of its colour each cell of a heat map loses. From 0.5 on it is hatched as well: a pale colour alone may be
/// taken for a value. Curves keep their colours, and the ground below them is hatched.
#[derive(Clone, Debug, PartialEq)]
pub struct Fade {
    /// Meaning of the hatching, for the legend.
    pub label: String,
    /// As the values of the map, or the places of curves: 0 full colour, 1 none; the standard deviation relative to the prior's, say.
    pub amount: Vec<f64>,
}

/// A set of points and how they look.
#[derive(Clone, Debug, PartialEq)]
pub struct Points {
    /// For the legend.
    pub label: String,
    /// (x, y).
    pub at: Vec<[f64; 2]>,
    /// What each of them looks like.
    pub marker: Marker,
}

/// Markers, with rims that show on light and on dark ground.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A small disc, for many points: recent states.
    Dot,
    /// An open circle, for few points that matter: the dictionary.
    Ring,
    /// A cross, for few points that are wrong.
    Cross,
    /// A filled square: where an episode terminated.
    Square,
    /// An open square: where an episode was cut off.
    OpenSquare,
}

/// Functions of one variable, each with a band of two standard deviations if it has any.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// Above the picture, as on a heat map.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Name and unit of what goes upwards.
    pub y_label: String,
    /// Scale of what goes upwards: linear or logarithmic.
    pub y_scale: Scale,
    /// From where to where; none: the range of the curves and points.
    pub y_range: Option<[f64; 2]>,
    /// (n,), rising: where the curves are known.
    pub at: Vec<f64>,
    /// At most six.
    pub lines: Vec<Line>,
    /// Where next to nothing is known, if anywhere: an amount for each place. From 0.5 on the ground below the curves is hatched.
    pub fade: Option<Fade>,
    /// Drawn on top. Points outside the axes are left out.
    pub points: Vec<Points>,
}

/// One curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// For the legend.
    pub label: String,
    /// (n,). The curve has a gap where this is not finite, or not positive on a logarithmic axis.
    pub mean: Vec<f64>,
    /// (n,) standard deviations, finite where the mean is, if the curve has any.
    pub deviation: Option<Vec<f64>>,
    /// Whether it is dashed: told from others by more than its colour.
    pub dashed: bool,
}

/// A number for each of a few names, as horizontal bars from zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Above the picture, as on a heat map.
    pub title: String,
    /// Name and unit of the numbers.
    pub label: String,
    /// From the top down, at least one.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// To its left.
    pub name: String,
    /// Its length, not negative.
    pub value: f64,
    /// Behind it.
    pub text: String,
}

impl Figure {
    /// Draw the figure into a PNG file, replacing what is there.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Panics
    /// If there is no panel, or the lengths of a panel's vectors disagree, or an axis has no extent.
    pub fn write_png(&self, path: &Path) -> io::Result<()> {
        self.write_png_in_rows(path, self.panels.len())
    }

    /// [`write_png`](Self::write_png), with a new row of panels after every `columns` of them.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Panics
    /// As there, or if `columns` is 0.
    pub fn write_png_in_rows(&self, path: &Path, columns: usize) -> io::Result<()> {
        OutputFile::to(path, &[])?.write(&self.png_in_rows(columns))
    }

    /// The bytes of a PNG file, with a new row of panels after every `columns` of them.
    ///
    /// # Panics
    /// As [`write_png_in_rows`](Self::write_png_in_rows).
    pub fn png_in_rows(&self, columns: usize) -> Vec<u8> {
        self.draw(Surface::pixels, columns).png()
    }

    /// The same of an SVG file. Letters are outlines: it looks alike everywhere.
    ///
    /// # Panics
    /// As there.
    pub fn svg_in_rows(&self, columns: usize) -> String {
        self.draw(Surface::svg, columns).svg_text()
    }

    fn draw(&self, surface: fn(f32, f32) -> Surface, columns: usize) -> Surface {
        assert!(!self.panels.is_empty(), "a figure has at least one panel");
        let (across, down) = (columns.min(self.panels.len()), self.panels.len().div_ceil(columns));
        let mut canvas = Canvas::new(surface(PANEL_WIDTH * across as f32, PANEL_HEIGHT * down as f32));
        // Panels share the lines on which their plots stand, so a legend or a long title of one moves them all.
        let rows = self.panels.iter().map(|p| legend::rows(&canvas, &p.legend())).max().unwrap_or(0);
        let below = self.panels.iter().map(|p| canvas.subtitle(p.title()).0.len()).max().unwrap_or(0);
        for (k, panel) in self.panels.iter().enumerate() {
            let (left, top) = (PANEL_WIDTH * (k % columns) as f32, PANEL_HEIGHT * (k / columns) as f32);
            let bottom = top + PANEL_HEIGHT - 72.0 - LEGEND_ROW * rows as f32;
            let top = top + 56.0 + SUBTITLE_ROW * below as f32;
            let frame = CanvasFrame { left, top, right: left + PANEL_WIDTH, bottom };
            let plot = match panel {
                Panel::Heatmap(map) => map.draw(&mut canvas, frame),
                Panel::Curves(curves) => curves.draw(&mut canvas, frame),
                Panel::Bars(bars) => bars.draw(&mut canvas, frame),
            };
            legend::draw(&mut canvas, frame, plot, &panel.legend());
        }
        canvas.surface
    }
}

const PANEL_WIDTH: f32 = 700.0;
const PANEL_HEIGHT: f32 = 600.0;
const LEGEND_ROW: f32 = 28.0;
const LABEL_SIZE: f32 = 18.0;
const TICK_SIZE: f32 = 16.0;
const TICK: f32 = 6.0;
const INK: [u8; 3] = [38, 38, 38];
const GRID: [u8; 3] = [228, 228, 228];
/// Colours of curves, after Okabe and Ito: told apart by every kind of colour vision.
const LINES: [[u8; 3]; 6] =
    [[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [230, 159, 0]];

/// A rectangle of the canvas, in pixels from the top left.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CanvasFrame {
    left: f32,
    top: f32,
    right: f32,
    bottom: f32,
}

impl CanvasFrame {
    fn rect(self) -> Rect {
        Rect::from_ltrb(self.left, self.top, self.right, self.bottom).expect("frames have an extent")
    }

    fn middle(self) -> (f32, f32) {
        (0.5 * (self.left + self.right), 0.5 * (self.top + self.bottom))
    }
}

/// A frame and what its sides stand for.
struct Plot {
    frame: CanvasFrame,
    x: Side,
    y: Side,
}

/// What one side of a plot stands for.
#[derive(Clone, Copy)]
struct Side {
    range: [f64; 2],
    scale: Scale,
}

impl Side {
    fn linear(range: [f64; 2]) -> Self {
        Self { range, scale: Scale::Linear }
    }

    fn of(axis: &Axis) -> Self {
        Self { range: axis.range, scale: axis.scale }
    }

    /// Share of the side up to `value`: 0 at its lower end, 1 at its upper one.
    fn share(self, value: f64) -> f32 {
        let [low, high] = self.range.map(|end| self.scale.place(end));
        ((self.scale.place(value) - low) / (high - low)) as f32
    }

    fn holds(self, value: f64) -> bool {
        (self.range[0]..=self.range[1]).contains(&value)
    }
}

impl Plot {
    fn x(&self, x: f64) -> f32 {
        self.frame.left + self.x.share(x) * (self.frame.right - self.frame.left)
    }

    fn y(&self, y: f64) -> f32 {
        self.frame.bottom - self.y.share(y) * (self.frame.bottom - self.frame.top)
    }

    fn holds(&self, [x, y]: [f64; 2]) -> bool {
        self.x.holds(x) && self.y.holds(y)
    }
}

#[derive(Clone, Copy)]
enum Align {
    Left,
    Middle,
    Right,
}

/// A surface, and the shapes that the pictures are made of.
struct Canvas {
    surface: Surface,
    face: ttf_parser::Face<'static>,
}

impl Canvas {
    fn new(surface: Surface) -> Self {
        let face = ttf_parser::Face::parse(dejavu::sans::regular(), 0).expect("the font that comes with us is sound");
        Self { surface, face }
    }

    fn line(&mut self, from: (f32, f32), to: (f32, f32), width: f32, colour: [u8; 3]) {
        let mut path = PathBuilder::new();
        path.move_to(from.0, from.1);
        path.line_to(to.0, to.1);
        self.stroke(path, width, colour, None);
    }

    fn stroke(&mut self, path: PathBuilder, width: f32, colour: [u8; 3], clip: Option<&Clip>) {
        if let Some(path) = path.finish() {
            self.surface.stroke(&path, width, colour, clip);
        }
    }

    fn stroke_dashed(&mut self, path: PathBuilder, width: f32, colour: [u8; 3], clip: Option<&Clip>) {
        let dash = StrokeDash::new(vec![8.0, 5.0], 0.0).expect("dashes and gaps have a length");
        if let Some(path) = path.finish().and_then(|path| path.dash(&dash, 1.0)) {
            self.surface.stroke(&path, width, colour, clip);
        }
    }

    fn fill(&mut self, path: PathBuilder, colour: [u8; 3], opacity: f32, clip: Option<&Clip>) {
        if let Some(path) = path.finish() {
            self.surface.fill(&path, colour, opacity, clip);
        }
    }

    fn outline(&mut self, frame: CanvasFrame) {
        let mut path = PathBuilder::new();
        path.push_rect(frame.rect());
        self.stroke(path, 1.0, INK, None);
    }

    fn marker(&mut self, marker: Marker, x: f32, y: f32) {
        let circle = |radius: f32| {
            let mut path = PathBuilder::new();
            path.push_circle(x, y, radius);
            path
        };
        let square = || {
            let mut path = PathBuilder::new();
            path.push_rect(CanvasFrame { left: x - 4.5, top: y - 4.5, right: x + 4.5, bottom: y + 4.5 }.rect());
            path
        };
        let cross = || {
            let mut path = PathBuilder::new();
            for (dx, dy) in [(5.0, 5.0), (5.0, -5.0)] {
                path.move_to(x - dx, y - dy);
                path.line_to(x + dx, y + dy);
            }
            path
        };
        match marker {
            Marker::Dot => {
                self.fill(circle(2.6), INK, 0.75, None);
                self.fill(circle(1.8), [255, 255, 255], 1.0, None);
            }
            Marker::Ring => {
                self.stroke(circle(5.0), 3.6, [255, 255, 255], None);
                self.stroke(circle(5.0), 1.8, INK, None);
            }
            Marker::Cross => {
                self.stroke(cross(), 5.0, [255, 255, 255], None);
                self.stroke(cross(), 2.4, INK, None);
            }
            Marker::Square => {
                self.fill(square(), INK, 1.0, None);
                self.stroke(square(), 1.0, [255, 255, 255], None);
            }
            Marker::OpenSquare => {
                self.fill(square(), [255, 255, 255], 1.0, None);
                self.stroke(square(), 1.6, INK, None);
            }
        }
    }

    /// Width of a text in pixels.
    fn width(&self, text: &str, size: f32) -> f32 {
        let units: u32 = text.chars().map(|c| u32::from(self.face.glyph_hor_advance(self.glyph(c)).unwrap_or(0))).sum();
        units as f32 * size / f32::from(self.face.units_per_em())
    }

    fn glyph(&self, c: char) -> ttf_parser::GlyphId {
        self.face.glyph_index(c).unwrap_or_default()
    }

    /// Write `text`, with (x, y) on its base line, turned to run upwards if asked for.
    fn text(&mut self, text: &str, size: f32, (x, y): (f32, f32), align: Align, upwards: bool) {
        let offset = match align {
            Align::Left => 0.0,
            Align::Middle => -0.5 * self.width(text, size),
            Align::Right => -self.width(text, size),
        };
        let scale = size / f32::from(self.face.units_per_em());
        let mut outline = Outline { path: PathBuilder::new(), advance: 0.0 };
        for c in text.chars() {
            let glyph = self.glyph(c);
            self.face.outline_glyph(glyph, &mut outline);
            outline.advance += f32::from(self.face.glyph_hor_advance(glyph).unwrap_or(0));
        }
        let turn = if upwards { -90.0 } else { 0.0 };
        let transform = Transform::from_scale(scale, -scale)
            .post_translate(offset, 0.0)
            .post_concat(Transform::from_rotate(turn))
            .post_translate(x, y);
        if let Some(path) = outline.path.finish().and_then(|path| path.transform(transform)) {
            self.surface.fill(&path, INK, 1.0, None);
        }
    }

    /// Colour each pixel of `frame` by its place in it: across and up, each in (0, 1).
    fn shade(&mut self, frame: CanvasFrame, colour: impl Fn(f64, f64) -> Oklab) {
        self.surface.image(frame, |across, up| colour(across, up).srgb());
    }

    /// Title, ticks and names of the axes of `plot`, within `panel`.
    fn axes(&mut self, plot: &Plot, panel: CanvasFrame, title: &str, x: (&str, &Ticks), y: (&str, &Ticks)) {
        let CanvasFrame { left, top, bottom, .. } = plot.frame;
        self.outline(plot.frame);
        for (value, text) in &x.1.0 {
            let at = sharp(plot.x(*value));
            self.line((at, bottom), (at, bottom + TICK), 1.0, INK);
            self.text(text, TICK_SIZE, (at, bottom + TICK + 18.0), Align::Middle, false);
        }
        for (value, text) in &y.1.0 {
            let at = sharp(plot.y(*value));
            self.line((left - TICK, at), (left, at), 1.0, INK);
            self.text(text, TICK_SIZE, (left - TICK - 5.0, at + 0.36 * TICK_SIZE), Align::Right, false);
        }
        let (x_middle, y_middle) = plot.frame.middle();
        self.title(title, panel, (x_middle, top - 18.0));
        self.text(x.0, LABEL_SIZE, (x_middle, bottom + 52.0), Align::Middle, false);
        self.text(y.0, LABEL_SIZE, (panel.left + 30.0, y_middle), Align::Middle, true);
    }

    fn widest(&self, ticks: &Ticks) -> f32 {
        ticks.0.iter().map(|(_, text)| self.width(text, TICK_SIZE)).fold(0.0, f32::max)
    }

    /// Ticks of a horizontal axis over `width` pixels, as many as have room for their texts.
    fn ticks_across(&self, axis: &Axis, width: f32) -> Ticks {
        let fits = |ticks: &Ticks| match &ticks.0[..] {
            [first, second, ..] => {
                let share = Side::of(axis).share(second.0) - Side::of(axis).share(first.0);
                share * width >= self.widest(ticks) + 16.0
            }
            _ => true,
        };
        (1..=6).rev().map(|count| axis.ticks(count)).find(fits).unwrap_or_else(|| axis.ticks(1))
    }

    fn points(&mut self, plot: &Plot, points: &[Points]) {
        for set in points {
            for &at in set.at.iter().filter(|at| plot.holds(**at)) {
                self.marker(set.marker, plot.x(at[0]), plot.y(at[1]));
            }
        }
    }
}

/// Letters on their way into one path, in units of the font.
struct Outline {
    path: PathBuilder,
    advance: f32,
}

impl ttf_parser::OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.path.move_to(self.advance + x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.path.line_to(self.advance + x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.path.quad_to(self.advance + x1, y1, self.advance + x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.path.cubic_to(self.advance + x1, y1, self.advance + x2, y2, self.advance + x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}

/// The middle of the pixel that holds `v`: lines one pixel wide are sharp there.
fn sharp(v: f32) -> f32 {
    v.floor() + 0.5
}

impl Heatmap {
    /// Draw within `panel`, whose top and bottom are the plot's; gives the frame of the plot.
    fn draw(&self, canvas: &mut Canvas, panel: CanvasFrame) -> CanvasFrame {
        let rows = self.values.len() / self.columns.max(1);
        assert!(rows > 0 && rows * self.columns == self.values.len(), "values are whole rows of cells");
        let fade = self.fade.as_ref().map(|f| &f.amount[..]);
        assert!(fade.is_none_or(|f| f.len() == self.values.len()), "fade has an amount for each value");
        let range = self.value_range.unwrap_or_else(|| extent(self.values.iter().copied()));
        assert_extent(range);
        assert!(self.x.scale != Scale::Log && self.y.scale != Scale::Log, "the axes of a heat map are linear");
        let (y_ticks, bar_ticks) = (self.y.ticks(6), ticks::decimal(range, 6));

        let (bar_width, bar_gap) = (20.0, 18.0);
        let left = (panel.left + 40.0 + canvas.widest(&y_ticks) + TICK + 8.0).ceil();
        let bar_right = (panel.right - 40.0 - canvas.widest(&bar_ticks) - TICK - 8.0).floor();
        let frame = CanvasFrame { left, right: bar_right - bar_width - bar_gap, ..panel };
        let x_ticks = canvas.ticks_across(&self.x, frame.right - frame.left);
        let bar = CanvasFrame { left: bar_right - bar_width, right: bar_right, ..panel };

        let share = |value: f64| (value - range[0]) / (range[1] - range[0]);
        let size = (f64::from(frame.right - frame.left), f64::from(frame.bottom - frame.top));
        canvas.shade(frame, |across, up| {
            let value = self.sample(&self.values, rows, across, up);
            if value.is_nan() {
                return ABSENT;
            }
            let pale = fade.map_or(0.0, |f| self.sample(f, rows, across, up).clamp(0.0, 1.0));
            if pale >= HATCHED && is_hatch(across * size.0, up * size.1) {
                return HATCH;
            }
            self.colours.at(share(value)).towards(PALE, pale)
        });
        let plot = Plot { frame: grown(frame), x: Side::of(&self.x), y: Side::of(&self.y) };
        canvas.points(&plot, &self.points);
        canvas.axes(&plot, panel, &self.title, (&self.x.label, &x_ticks), (&self.y.label, &y_ticks));
        if self.bar {
            self.draw_bar(canvas, bar, panel, (range, &bar_ticks));
        }
        frame
    }

    /// The grid at a place of the plot, across and up, each in (0, 1).
    fn sample(&self, grid: &[f64], rows: usize, across: f64, up: f64) -> f64 {
        let columns = self.columns;
        if !self.smooth {
            return grid[(up * rows as f64) as usize * columns + (across * columns as f64) as usize];
        }
        // Between the centres of four cells; beyond the outermost centres as there.
        let between = |t: f64, count: usize| {
            let place = (t * count as f64 - 0.5).clamp(0.0, (count - 1) as f64);
            let k = (place as usize).min(count.saturating_sub(2));
            (k, (k + 1).min(count - 1), place - k as f64)
        };
        let ((i0, i1, s), (j0, j1, t)) = (between(across, columns), between(up, rows));
        let row = |j: usize| (1.0 - s) * grid[j * columns + i0] + s * grid[j * columns + i1];
        (1.0 - t) * row(j0) + t * row(j1)
    }
}

/// The frame whose outline, one pixel wide, runs just around the pixels of `frame`.
fn grown(frame: CanvasFrame) -> CanvasFrame {
    CanvasFrame { left: frame.left - 0.5, top: frame.top - 0.5, right: frame.right + 0.5, bottom: frame.bottom + 0.5 }
}

fn assert_extent([low, high]: [f64; 2]) {
    assert!(low.is_finite() && high.is_finite() && low < high, "a range goes from {low} to {high}");
}

/// Least and greatest finite value; some extent around a constant, [0, 1] without any.
fn extent(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let finite = values.filter(|v| v.is_finite());
    let [low, high] = finite.fold([f64::INFINITY, f64::NEG_INFINITY], |[a, b], v| [a.min(v), b.max(v)]);
    if low < high {
        [low, high]
    } else if low == high {
        let half = 0.5 * low.abs().max(1.0);
        [low - half, high + half]
    } else {
        [0.0, 1.0]
    }
}

impl Panel {
    fn title(&self) -> &str {
        match self {
            Self::Heatmap(map) => &map.title,
            Self::Curves(curves) => &curves.title,
            Self::Bars(bars) => &bars.title,
        }
    }

    fn legend(&self) -> Vec<(Key, &str)> {
        let (points, mut entries) = match self {
            Self::Heatmap(map) => {
                let fade = map.fade.iter().map(|f| (Key::Fade(map.colours), f.label.as_str()));
                (&map.points, fade.collect::<Vec<_>>())
            }
            Self::Curves(curves) => {
                let lines = curves.lines.iter().zip(LINES);
                let key = |(line, colour): (&Line, _)| match line.dashed {
                    true => Key::Dashes(colour, line.deviation.is_some()),
                    false => Key::Line(colour, line.deviation.is_some()),
                };
                let lines = lines.map(|(line, colour)| (key((line, colour)), line.label.as_str()));
                let fade = curves.fade.iter().filter(|f| f.amount.iter().any(|amount| *amount >= HATCHED));
                (&curves.points, lines.chain(fade.map(|f| (Key::Hatch, f.label.as_str()))).collect())
            }
            Self::Bars(_) => return Vec::new(),
        };
        entries.extend(points.iter().map(|set| (Key::Marker(set.marker), set.label.as_str())));
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::curves::runs;
    use super::title::{SUBTITLE_ROWS, SUBTITLE_WIDTH};
    use super::*;
    use crate::colour::GROUND;
    use tiny_skia::Pixmap;

    fn map(columns: usize, values: Vec<f64>) -> Heatmap {
        let (x, y) = (Axis::new("x", 0.0, 1.0), Axis::new("y", 0.0, 1.0));
        Heatmap { smooth: false, ..Heatmap::new("t", x, y, columns, values, "v") }
    }

    fn drawn(figure: &Figure, columns: usize) -> Pixmap {
        Pixmap::decode_png(&figure.draw(Surface::pixels, columns).png()).unwrap()
    }

    fn pixel(canvas: &Pixmap, x: u32, y: u32) -> [u8; 3] {
        let p = canvas.pixel(x, y).unwrap();
        [p.red(), p.green(), p.blue()]
    }

    fn canvas() -> Canvas {
        Canvas::new(Surface::pixels(PANEL_WIDTH, PANEL_HEIGHT))
    }

    #[test]
    fn the_file_holds_the_figure() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("figure.png");
        let curve = Line { label: "a".into(), mean: vec![0.0, 1.0], deviation: Some(vec![0.1, 0.3]), dashed: false };
        let curves = Curves {
            title: "Curves".into(),
            x: Axis::angle("angle [rad]", 0.0, 1.0),
            y_label: "y".into(),
            y_scale: Scale::Linear,
            y_range: None,
            at: vec![0.0, 2.0],
            lines: vec![curve],
            fade: None,
            points: vec![Points { label: "p".into(), at: vec![[0.5, 0.5], [9.0, 9.0]], marker: Marker::Ring }],
        };
        let figure = Figure { panels: vec![Panel::Heatmap(map(2, vec![0.0; 4])), Panel::Curves(curves)] };
        figure.write_png(&path).unwrap();
        assert_eq!(Pixmap::load_png(&path).unwrap(), drawn(&figure, 2));
        assert_eq!((drawn(&figure, 2).width(), drawn(&figure, 2).height()), (1400, 600));
        assert!(figure.write_png(&directory.path().join("absent/figure.png")).is_err());
    }

    #[test]
    fn both_kinds_of_file_hold_the_same() {
        let mut map = map(2, vec![0.0, 1.0, 2.0, 3.0]);
        map.points = vec![Points { label: "p & q".into(), at: vec![[0.5, 0.5]], marker: Marker::Ring }];
        let bar = |name: &str, value| Bar { name: name.into(), value, text: format!("{value}") };
        let bars = Bars { title: "Bars".into(), label: "b".into(), bars: vec![bar("one", 1.0), bar("two", 0.0)] };
        let curve = Line { label: "a".into(), mean: vec![0.0, 1.0], deviation: Some(vec![0.1, 0.3]), dashed: false };
        let curves = Curves {
            title: "Curves".into(),
            x: Axis::new("x", 0.0, 1.0),
            y_label: "y".into(),
            y_scale: Scale::Linear,
            y_range: None,
            at: vec![0.0, 1.0],
            lines: vec![curve],
            fade: None,
            points: Vec::new(),
        };
        let figure = Figure { panels: vec![Panel::Heatmap(map), Panel::Bars(bars), Panel::Curves(curves)] };
        let svg = figure.svg_in_rows(3);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("viewBox=\"0 0 2100 600\""));
        // Two images, of the map and of its colour bar; bands and curves are clipped.
        assert_eq!(svg.matches("<image ").count(), 2);
        assert_eq!(svg.matches("clip-path=").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        // The bar of value 1 is longer than the bar of 0 and has the colour of curves.
        let canvas = drawn(&figure, 3);
        let blue = |x, y| u32::from(pixel(&canvas, x, y)[2]) > u32::from(pixel(&canvas, x, y)[0]) + 60;
        assert!(blue(1000, 56 + 36) && !blue(1000, 56 + 72 + 36));
    }

    #[test]
    fn curves_stand_on_hatched_ground_where_next_to_nothing_is_known() {
        let mut curves = Curves {
            title: "a title that would not fit above the curve: it is written in smaller letters, whatever it takes"
                .into(),
            x: Axis::new("x", 0.0, 3.0),
            y_label: "y".into(),
            y_scale: Scale::Linear,
            y_range: Some([0.0, 1.0]),
            at: vec![0.0, 1.0, 2.0, 3.0],
            lines: vec![Line { label: "a".into(), mean: vec![0.9; 4], deviation: None, dashed: false }],
            fade: Some(Fade { label: "not known".into(), amount: vec![0.0, 0.49, 0.5, 1.0] }),
            points: Vec::new(),
        };
        let figure = Figure { panels: vec![Panel::Curves(curves.clone())] };
        let (canvas, row) = (drawn(&figure, 1), 320);
        let hatched = |x: &u32| [GROUND.srgb(), PALE.srgb()].contains(&pixel(&canvas, *x, row));
        let found: Vec<u32> = (0..700).filter(hatched).collect();
        // From the middle between the second place and the third on.
        let (from, to) = (found[0], *found.last().unwrap());
        assert!((365..410).contains(&from) && to > 650 && found.len() as u32 > (to - from) * 9 / 10, "{from} {to}");
        let lines = found.iter().filter(|x| pixel(&canvas, **x, row) == GROUND.srgb()).count();
        assert!((found.len() / 9..found.len() / 3).contains(&lines), "{lines} of {}", found.len());
        // The title leaves the edges free.
        assert!((0..40).all(|y| pixel(&canvas, 3, y) == [255; 3] && pixel(&canvas, 697, y) == [255; 3]));
        // What is all known has no hatching, and no word of it.
        curves.fade = Some(Fade { label: "not known".into(), amount: vec![0.0; 4] });
        assert_eq!(Panel::Curves(curves).legend().len(), 1);
        assert_eq!(runs(&[1, 1, 0, 1, 0, 0, 1], |v| *v == 1).collect::<Vec<_>>(), [0..2, 3..4, 6..7]);
    }

    #[test]
    fn a_title_has_as_many_lines_as_it_takes() {
        let canvas = canvas();
        assert!(canvas.subtitle("a title of one line, however long it is").0.is_empty());
        let words: Vec<String> = (0..12).map(|k| format!("joint_{k}_speed\u{a0}=\u{a0}{k}.25,")).collect();
        let (lines, size) = canvas.subtitle(&format!("Value\n{}", words.join(" ")));
        assert!((3..=SUBTITLE_ROWS).contains(&lines.len()) && size == TICK_SIZE, "{size} {lines:?}");
        assert_eq!(lines.join(" "), words.join(" "), "every word is there");
        assert!(lines.iter().all(|line| canvas.width(line, size) <= SUBTITLE_WIDTH), "{lines:?}");
        // Very wide words and very many of them are written in smaller letters.
        for text in ["w".repeat(100), ["some words"; 100].join(" ")] {
            let (lines, size) = canvas.subtitle(&format!("Value\n{text}"));
            assert!(lines.len() <= SUBTITLE_ROWS && size < TICK_SIZE && lines.join(" ") == text, "{size} {lines:?}");
            assert!(lines.iter().all(|line| canvas.width(line, size) <= SUBTITLE_WIDTH), "{lines:?}");
        }
        // All plots of a figure give way, and the picture stays as large as it was.
        let long = Heatmap { title: "t\none\ntwo".into(), ..map(2, vec![0.0; 4]) };
        let figure = Figure { panels: vec![Panel::Heatmap(map(2, vec![0.0; 4])), Panel::Heatmap(long)] };
        let canvas = drawn(&figure, 2);
        let top = 56 + 2 * SUBTITLE_ROW as u32;
        assert_eq!((canvas.width(), canvas.height()), (1400, 600));
        for x in [200, 900] {
            assert_eq!(pixel(&canvas, x, top + 4), Colours::Value.at(0.5).srgb());
            assert_eq!(pixel(&canvas, x, top - 4), [255; 3]);
        }
    }

    #[test]
    fn the_text_behind_a_bar_stays_in_the_panel() {
        let bar = |name: &str, value, text: &str| Bar { name: name.into(), value, text: text.into() };
        let bars =
            vec![bar("a place", 0.99, "99 %, lengthscale 0.512 m/s"), bar("a load", 0.2, "20 %, lengthscale 4 kg")];
        let bars = Bars { title: "Bars".into(), label: "b".into(), bars };
        let canvas = drawn(&Figure { panels: vec![Panel::Bars(bars)] }, 1);
        // Right of the frame, on the lines of the texts, nothing is written.
        let beyond = |y: u32| (664..700).all(|x| pixel(&canvas, x, y) == [255; 3]);
        assert!((64..190).all(beyond));
    }

    #[test]
    fn logarithmic_curves_stand_where_their_exponents_are() {
        let side = Side { range: [1e-4, 1.0], scale: Scale::Log };
        assert!((side.share(1e-3) - 0.25).abs() < 1e-6 && (side.share(1e-1) - 0.75).abs() < 1e-6);
        let curves = Curves {
            title: "Spectrum".into(),
            x: Axis::log("threshold", 1e-3, 1.0),
            y_label: "eigenvalue".into(),
            y_scale: Scale::Log,
            y_range: None,
            at: vec![1e-3, 1e-2, 1e-1, 1.0],
            lines: vec![Line {
                label: "a".into(),
                mean: vec![100.0, 0.0, 1.0, f64::NAN],
                deviation: None,
                dashed: false,
            }],
            fade: None,
            points: Vec::new(),
        };
        let [low, high] = curves.natural_range();
        assert!((low.log10() + 0.1).abs() < 1e-9 && (high.log10() - 2.1).abs() < 1e-9, "{low} {high}");
        // Zero has no place on a logarithmic axis: a gap, not an infinite line.
        let figure = Figure { panels: vec![Panel::Curves(curves); 3] };
        let canvas = drawn(&figure, 2);
        assert_eq!((canvas.width(), canvas.height()), (1400, 1200));
    }

    #[test]
    fn rows_go_up_and_columns_to_the_right() {
        let mut map = map(2, vec![0.0, 1.0, 2.0, f64::NAN]);
        map.value_range = Some([0.0, 4.0]);
        let canvas = drawn(&Figure { panels: vec![Panel::Heatmap(map.clone())] }, 1);
        let colour = |t: f64| Colours::Value.at(t).srgb();
        let corners = [[120, 490], [520, 490], [120, 70], [520, 70]].map(|[x, y]| pixel(&canvas, x, y));
        assert_eq!(corners, [colour(0.0), colour(0.25), colour(0.5), ABSENT.srgb()]);

        map.fade = Some(Fade { label: "pale".into(), amount: vec![1.0, 0.0, 7.0, 0.0] });
        let canvas = drawn(&Figure { panels: vec![Panel::Heatmap(map)] }, 1);
        assert_eq!(pixel(&canvas, 120, 460), PALE.srgb());
        assert_eq!(pixel(&canvas, 520, 460), colour(0.25));
    }

    #[test]
    fn smooth_maps_interpolate_between_centres() {
        let map = Heatmap { smooth: true, ..map(2, vec![0.0, 1.0, 2.0, 3.0]) };
        let at = |across, up| map.sample(&map.values, 2, across, up);
        assert_eq!((at(0.25, 0.25), at(0.75, 0.75), at(0.5, 0.5)), (0.0, 3.0, 1.5));
        assert_eq!((at(0.01, 0.01), at(0.99, 0.25)), (0.0, 1.0), "flat beyond the outermost centres");
        let centres = Heatmap::centres(&map.x, &map.y, 2, 2);
        assert!(centres.iter().zip(&map.values).all(|(c, v)| at(c[0], c[1]) == *v));
    }

    #[test]
    fn long_legends_take_more_rows() {
        let canvas = canvas();
        let entry = (Key::Marker(Marker::Dot), "a legend of some length, about 400 pixels");
        assert_eq!(legend::rows(&canvas, &[]), 0);
        assert_eq!(legend::rows(&canvas, &[entry]), 1);
        assert_eq!(legend::rows(&canvas, &[entry; 3]), 3);
    }

    #[test]
    fn texts_of_ticks_keep_apart() {
        let canvas = canvas();
        let axis = Axis::new("x", 123_456.0, 123_457.0);
        for width in [200.0, 400.0, 800.0] {
            let ticks = canvas.ticks_across(&axis, width).0;
            let place = |v: f64| (v - axis.range[0]) as f32 * width;
            for pair in ticks.windows(2) {
                let room = place(pair[1].0) - place(pair[0].0);
                assert!(room > canvas.width(&pair[0].1, TICK_SIZE), "{width} {pair:?}");
            }
        }
    }

    #[test]
    fn constant_and_absent_values_have_a_range_too() {
        assert_eq!(extent([3.0].into_iter()), [1.5, 4.5]);
        assert_eq!(extent([f64::NAN].into_iter()), [0.0, 1.0]);
        assert_eq!(extent([f64::NAN, 1.0, f64::INFINITY, -2.0].into_iter()), [-2.0, 1.0]);
    }
}

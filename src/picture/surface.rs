//! What pictures are drawn on: pixels, or the text of an SVG file.

use super::CanvasFrame;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write as _;
use tiny_skia::{
    Color, FillRule, LineCap, LineJoin, Mask, Paint, Path, PathBuilder, PathSegment, Pixmap, PremultipliedColorU8,
    Stroke, Transform,
};

/// A white rectangle to draw on.
pub(super) enum Surface {
    Pixels(Pixmap),
    Svg(Svg),
}

/// The text of an SVG file so far.
pub(super) struct Svg {
    width: f32,
    height: f32,
    body: String,
    clips: usize,
}

/// A part of a surface to which a shape is confined.
pub(super) enum Clip {
    Mask(Mask),
    /// Name of a clip path.
    Path(String),
}

impl Surface {
    /// Pixels, `width` by `height` of them.
    pub(super) fn pixels(width: f32, height: f32) -> Self {
        let mut pixmap = Pixmap::new(width as u32, height as u32).expect("the size is neither zero nor huge");
        pixmap.fill(Color::WHITE);
        Self::Pixels(pixmap)
    }

    /// The text of a file of that size.
    pub(super) fn svg(width: f32, height: f32) -> Self {
        Self::Svg(Svg { width, height, body: String::new(), clips: 0 })
    }

    /// A PNG file's bytes.
    ///
    /// # Panics
    /// If the surface is not of pixels.
    pub(super) fn png(&self) -> Vec<u8> {
        let Self::Pixels(pixmap) = self else { panic!("an SVG file has no pixels") };
        pixmap.encode_png().expect("memory takes everything")
    }

    /// An SVG file's text.
    ///
    /// # Panics
    /// If the surface is of pixels.
    pub(super) fn svg_text(&self) -> String {
        let Self::Svg(Svg { width, height, body, .. }) = self else { panic!("pixels are no SVG file") };
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }

    pub(super) fn stroke(&mut self, path: &Path, width: f32, colour: [u8; 3], clip: Option<&Clip>) {
        match self {
            Self::Pixels(pixmap) => {
                let stroke = Stroke { width, line_cap: LineCap::Butt, line_join: LineJoin::Round, ..Stroke::default() };
                pixmap.stroke_path(path, &paint(colour, 1.0), &stroke, Transform::identity(), mask(clip));
            }
            Self::Svg(svg) => {
                let style = format!(
                    "fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"",
                    hex(colour)
                );
                svg.path(path, &style, clip);
            }
        }
    }

    pub(super) fn fill(&mut self, path: &Path, colour: [u8; 3], opacity: f32, clip: Option<&Clip>) {
        match self {
            Self::Pixels(pixmap) => {
                let paint = paint(colour, opacity);
                pixmap.fill_path(path, &paint, FillRule::Winding, Transform::identity(), mask(clip));
            }
            Self::Svg(svg) => {
                let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{opacity}\"") } else { String::new() };
                svg.path(path, &format!("fill=\"{}\"{opacity}", hex(colour)), clip);
            }
        }
    }

    /// Colour each pixel of `frame` by its place in it: across and up, each in (0, 1).
    pub(super) fn image(&mut self, frame: CanvasFrame, colour: impl Fn(f64, f64) -> [u8; 3]) {
        let (left, top) = (frame.left as u32, frame.top as u32);
        let (width, height) = ((frame.right - frame.left) as u32, (frame.bottom - frame.top) as u32);
        match self {
            Self::Pixels(pixmap) => paint_image(pixmap, (left, top), (width, height), colour),
            Self::Svg(svg) => {
                let mut image = Pixmap::new(width, height).expect("frames have an extent");
                paint_image(&mut image, (0, 0), (width, height), colour);
                let png = STANDARD.encode(image.encode_png().expect("memory takes everything"));
                svg.line(format_args!(
                    "<image x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" href=\"data:image/png;base64,{png}\"/>"
                ));
            }
        }
    }

    /// To confine shapes to `frame`.
    pub(super) fn clip(&mut self, frame: CanvasFrame) -> Clip {
        match self {
            Self::Pixels(pixmap) => {
                let mut mask = Mask::new(pixmap.width(), pixmap.height()).expect("as large as the surface");
                let rectangle = PathBuilder::from_rect(frame.rect());
                mask.fill_path(&rectangle, FillRule::Winding, true, Transform::identity());
                Clip::Mask(mask)
            }
            Self::Svg(svg) => {
                svg.clips += 1;
                let (name, rect) = (format!("clip{}", svg.clips), frame.rect());
                svg.line(format_args!(
                    "<clipPath id=\"{name}\"><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/></clipPath>",
                    rect.left(),
                    rect.top(),
                    rect.width(),
                    rect.height()
                ));
                Clip::Path(name)
            }
        }
    }
}

impl Svg {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{text}").expect("a string takes everything");
    }

    fn path(&mut self, path: &Path, style: &str, clip: Option<&Clip>) {
        let mut data = String::new();
        for segment in path.segments() {
            // Hundredths of a pixel are enough.
            let step = match segment {
                PathSegment::MoveTo(p) => format!("M{:.2} {:.2}", p.x, p.y),
                PathSegment::LineTo(p) => format!("L{:.2} {:.2}", p.x, p.y),
                PathSegment::QuadTo(a, p) => format!("Q{:.2} {:.2} {:.2} {:.2}", a.x, a.y, p.x, p.y),
                PathSegment::CubicTo(a, b, p) => {
                    format!("C{:.2} {:.2} {:.2} {:.2} {:.2} {:.2}", a.x, a.y, b.x, b.y, p.x, p.y)
                }
                PathSegment::Close => "Z".to_owned(),
            };
            data += &step;
        }
        let clip = match clip {
            Some(Clip::Path(name)) => format!(" clip-path=\"url(#{name})\""),
            _ => String::new(),
        };
        self.line(format_args!("<path d=\"{data}\" {style}{clip}/>"));
    }
}

fn mask(clip: Option<&Clip>) -> Option<&Mask> {
    match clip {
        Some(Clip::Mask(mask)) => Some(mask),
        _ => None,
    }
}

fn paint([r, g, b]: [u8; 3], opacity: f32) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(r, g, b, (255.0 * opacity).round() as u8);
    paint
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn paint_image(
    pixmap: &mut Pixmap,
    (left, top): (u32, u32),
    (width, height): (u32, u32),
    colour: impl Fn(f64, f64) -> [u8; 3],
) {
    let stride = pixmap.width();
    let pixels = pixmap.pixels_mut();
    for j in 0..height {
        for i in 0..width {
            let across = (f64::from(i) + 0.5) / f64::from(width);
            let up = 1.0 - (f64::from(j) + 0.5) / f64::from(height);
            let [r, g, b] = colour(across, up);
            let pixel = PremultipliedColorU8::from_rgba(r, g, b, 255).expect("opaque");
            pixels[((top + j) * stride + left + i) as usize] = pixel;
        }
    }
}

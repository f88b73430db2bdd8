//! The files of the page, as the browser gets them.

use bytes::Bytes;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// A script of the page under its own name.
macro_rules! script {
    ($name:literal) => {
        (concat!("/", $name, ".js"), SCRIPT, include_str!(concat!("page/", $name, ".js")))
    };
}

/// Path, content type and text.
pub(super) const FILES: &[(&str, &str, &str)] = &[
    ("/", HTML, include_str!("page/index.html")),
    ("/style.css", STYLE, include_str!("page/style.css")),
    ("/icon.svg", IMAGE, include_str!("page/icon.svg")),
    script!("actions"),
    script!("address"),
    script!("adoption"),
    script!("app"),
    script!("attention"),
    script!("axes"),
    script!("calibration"),
    script!("canvas"),
    script!("cards"),
    script!("compare"),
    script!("course"),
    script!("critics"),
    script!("curve"),
    script!("dom"),
    script!("empty"),
    script!("episodes"),
    script!("errors"),
    script!("glossary"),
    script!("heads"),
    script!("heat"),
    script!("kernel"),
    script!("known"),
    script!("lines"),
    script!("listen"),
    script!("marks"),
    script!("path"),
    script!("picture"),
    script!("plan"),
    script!("relevance"),
    script!("robots"),
    script!("save"),
    script!("scatter"),
    script!("shapes"),
    script!("strip"),
    script!("svg"),
    script!("then"),
    script!("time"),
    script!("trust"),
    script!("value"),
    script!("words"),
];

/// A file as it is sent: without indentation and comments, style sheets without other spaces that say nothing, and scripts without the
/// kinds of elements, which are for the compiler of types alone. That is a quarter of them. Lines keep their numbers.
pub(super) fn sent(kind: &str, text: &'static str) -> Bytes {
    let (mut out, mut commented, mut quoted) = (String::with_capacity(text.len()), false, false);
    for line in text.lines() {
        let mut rest = if quoted { line } else { line.trim_start() };
        if kind != SCRIPT {
            // A comment of a style sheet stands on one line.
            let noted = rest.split_once("/*").filter(|_| kind == STYLE);
            let (before, behind) =
                noted.map_or((rest, ""), |(own, note)| (own, note.split_once("*/").map_or("", |(_, own)| own)));
            let parts = before.chars().chain(behind.chars());
            if kind == STYLE {
                parts.for_each(|c| push_closely(&mut out, c));
            } else {
                out.extend(parts);
            }
            out.push('\n');
            continue;
        }
        let from = out.len();
        if commented {
            let Some((_, behind)) = line.split_once("*/") else {
                out.push('\n');
                continue;
            };
            (rest, commented) = (behind.trim_start(), false);
        }
        while !rest.trim_start().starts_with("//") {
            let Some((before, comment)) = rest.split_once("/**") else {
                out.push_str(rest);
                break;
            };
            out.push_str(before);
            match comment.split_once("*/") {
                Some((_, behind)) => rest = behind.trim_start(),
                None => {
                    commented = true;
                    break;
                }
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        without_kinds(&mut out, from);
        // Within a text of several lines spaces count.
        quoted ^= out[from..].matches('`').count() % 2 == 1;
        out.push('\n');
    }
    out.into()
}

/// Add a character of a style sheet, where spaces around brackets, commas and semicolons, and behind colons, say nothing.
fn push_closely(out: &mut String, c: char) {
    if matches!(c, '{' | '}' | ';' | ',') && out.ends_with(' ') {
        out.pop();
    }
    if c != ' ' || !out.ends_with(['{', '}', ';', ',', ':']) {
        out.push(c);
    }
}

/// Take from the line that begins at `from` what `$` is called with for the compiler of types: `$('mode', HTMLSelectElement)`.
fn without_kinds(out: &mut String, from: usize) {
    let mut at = from;
    while let Some(found) = out[at..].find("', HTML") {
        at += found + 1;
        let kind = out[at + 2..].find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(0);
        if out[at + 2 + kind..].starts_with(')') {
            out.replace_range(at..at + 2 + kind, "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn scripts_are_sent_without_comments() {
        let text = "// a\n/** b */ let x = (/** @type {c} */ (y)); // d\n/**\n * e\n */\nlet s = 'http://f';\n";
        assert_eq!(sent(SCRIPT, text), "\nlet x = ((y)); // d\n\n\n\nlet s = 'http://f';\n");
        let text = "/* a */\n  b:c d, e { f: 1px 2px; g: h } /* i */ j {}\n";
        assert_eq!(sent(STYLE, text), "\nb:c d,e{f:1px 2px;g:h}j{}\n");
        let text =
            "  f($('a', HTMLElement), $(`b`, HTMLElement));\n  let t = `c\n    d`;\n  x instanceof HTMLElement\n";
        let expected = "f($('a'), $(`b`, HTMLElement));\nlet t = `c\n    d`;\nx instanceof HTMLElement\n";
        assert_eq!(sent(SCRIPT, text), expected);
        let lines = |text: &[u8]| text.iter().filter(|&&byte| byte == b'\n').count();
        for (path, kind, text) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            let sent = sent(kind, text);
            assert_eq!(lines(&sent), lines(text.as_bytes()), "{path}");
            assert!(!sent.windows(3).any(|three| three == b"/**"), "{path}");
        }
    }

    #[test]
    fn every_script_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/page");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let scripts: BTreeSet<String> =
            names.filter(|name| name.ends_with(".js")).map(|name| format!("/{name}")).collect();
        let served = FILES.iter().map(|(path, ..)| (*path).to_owned()).filter(|path| path.ends_with(".js"));
        assert_eq!(served.collect::<BTreeSet<String>>(), scripts);
    }
}

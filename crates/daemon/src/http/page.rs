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

/// A file as it is sent: of scripts without their comments, which are a fifth of them. Lines keep their numbers.
pub(super) fn sent(kind: &str, text: &'static str) -> Bytes {
    if kind != SCRIPT {
        return Bytes::from_static(text.as_bytes());
    }
    let (mut out, mut within) = (String::with_capacity(text.len()), false);
    for line in text.lines() {
        let mut rest = line;
        if within {
            let Some((_, behind)) = line.split_once("*/") else {
                out.push('\n');
                continue;
            };
            (rest, within) = (behind, false);
        }
        while !rest.trim_start().starts_with("//") {
            let Some((before, comment)) = rest.split_once("/**") else {
                out.push_str(rest);
                break;
            };
            out.push_str(before);
            match comment.split_once("*/") {
                Some((_, behind)) => rest = behind,
                None => {
                    within = true;
                    break;
                }
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn scripts_are_sent_without_comments() {
        let text = "// a\n/** b */ let x = (/** @type {c} */ (y)); // d\n/**\n * e\n */\nlet s = 'http://f';\n";
        assert_eq!(sent(SCRIPT, text), " let x = ( (y)); // d\n\n\n\nlet s = 'http://f';\n".replacen(' ', "\n ", 1));
        assert_eq!(sent(STYLE, "/** a */"), "/** a */");
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

//! The files of the page, as the browser gets them.

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
    script!("time"),
    script!("trust"),
    script!("value"),
    script!("words"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

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

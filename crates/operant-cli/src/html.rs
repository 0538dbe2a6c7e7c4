//! Pages that stand alone: one file with its style in it and nothing to fetch.

use crate::svg::{Plot, escape};
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--dim:#888;--back:#fff;--text:#1a1a1a}
@media(prefers-color-scheme:dark){:root{--back:#16181c;--text:#e6e6e6}}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;background:var(--back);color:var(--text)}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}.dim{color:var(--dim)}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem .9rem .15rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.number{text-align:right;font-variant-numeric:tabular-nums}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(340px,1fr));gap:1rem}
svg{width:100%;height:auto;border:1px solid var(--line);border-radius:4px}svg text{fill:currentColor;font:11px system-ui,sans-serif}
svg .title{font-size:13px;font-weight:600}svg .tick{fill:var(--dim)}svg .grid{stroke:var(--line)}
svg .band{opacity:.2}svg .mark{stroke:var(--dim);stroke-dasharray:3 3}svg .line{fill:none;stroke-width:1.6;stroke-linejoin:round}
.key{display:inline-block;width:1.2em;height:.25em;margin-right:.4em;vertical-align:middle}";

/// A whole page around a body.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// A section with a table; nothing if there are no rows. Cells that hold numbers stand to the right.
pub(crate) fn table(heading: &str, header: &[String], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut html = format!("<h2>{}</h2>\n<table>\n", escape(heading));
    if !header.is_empty() {
        let cells: String = header.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
        let _ = writeln!(html, "<tr>{cells}</tr>");
    }
    for row in rows {
        html.push_str("<tr>");
        for cell in row {
            let class =
                if cell.starts_with(|c: char| c.is_ascii_digit() || c == '-') { " class=\"number\"" } else { "" };
            let _ = write!(html, "<td{class}>{}</td>", escape(cell));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
    html
}

/// A section with plots; those with nothing to see are left out.
pub(crate) fn plots(heading: &str, plots: &[Plot]) -> String {
    let shown: String = plots.iter().filter(|plot| !plot.is_empty()).map(Plot::svg).collect();
    if shown.is_empty() {
        return String::new();
    }
    format!("<h2>{}</h2>\n<div class=\"plots\">\n{shown}</div>\n", escape(heading))
}

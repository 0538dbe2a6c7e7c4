//! `operant field visualize` and `operant field gallery`: fields to look at, as files and as one page.

use super::panels::{COLUMNS, Panels};
use super::picture::{Colours, Film, write_whole};
use super::{feature_names, open, operator_of};
use crate::collect::made_on;
use crate::format::number;
use crate::html;
use crate::output::{Failure, print, warn};
use crate::svg::escape;
use operant::field::collect::{Collection, flags};
use operant::field::initial::KINDS;
use operant::field::shards::Shards;
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// Hands fields `[M, H, W, C]` of an operator at these times, which rise, to `see`: those of the store, or made again.
fn look(
    collection: &Collection,
    store: &Shards,
    k: u32,
    times: &[u32],
    see: &mut dyn FnMut(&[f32]),
) -> Result<(), Failure> {
    let (sampled, s) = (collection.sampled(k), &collection.settings);
    let name = format!("trajectories_{}", sampled.operator.grid);
    let kept = store.layout().arrays.iter().any(|array| array.name == name)
        && times.iter().all(|t| t.is_multiple_of(s.trajectory_every));
    if let Some(stored) = if kept { store.numbers(&name, k as usize)? } else { None } {
        let (len, channels) = (sampled.operator.field_len(), s.channels);
        let (pixels, kept) = (len / channels, stored.len() / len / s.realisations as usize);
        let mut fields = vec![0.0; len * s.realisations as usize];
        for &t in times {
            for (m, field) in fields.chunks_exact_mut(len).enumerate() {
                let from = &stored[(m * kept + (t / s.trajectory_every) as usize) * len..][..len];
                for (at, to) in field.iter_mut().enumerate() {
                    *to = from[at % channels * pixels + at / channels] as f32;
                }
            }
            see(&fields);
        }
        return Ok(());
    }
    if made_on(store) != "cpu" {
        warn("the store was made on a GPU and keeps no fields: these are made again on the CPU and part from them");
    }
    collection.check_draws(store)?;
    let mut rollout = collection.rollout(&sampled, 0..s.realisations)?;
    for &t in times {
        while rollout.time() < t {
            rollout.step();
        }
        see(rollout.state());
    }
    Ok(())
}

/// What [`visualize`] is asked for.
pub(super) struct Look<'a> {
    pub(super) operator: u32,
    pub(super) out: &'a Path,
    pub(super) every: u32,
    pub(super) zoom: u32,
    pub(super) colours: Colours,
    pub(super) fps: u32,
}

pub(super) fn visualize(folder: &Path, ask: &Look<'_>) -> Result<ExitCode, Failure> {
    let (collection, store) = open(folder)?;
    operator_of(&store, ask.operator)?;
    let ending = ask.out.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    if !["gif", "png", "mp4"].contains(&ending.as_str()) {
        let out = ask.out.display();
        return Err(Failure::Usage(format!("--out {out}: wanted a name that ends with .png, .gif or .mp4")));
    }
    let (grid, s) = (collection.sampled(ask.operator).operator.grid, &collection.settings);
    let mut panels = Panels::new(grid, s.channels, grid * ask.zoom as usize);
    let mut times: Vec<u32> = (0..=s.steps).step_by(ask.every as usize).collect();
    if ending == "png" && !s.steps.is_multiple_of(ask.every) {
        times.push(s.steps);
    }
    look(&collection, &store, ask.operator, &times, &mut |fields| panels.see(fields))?;
    let (width, height) = panels.size();
    let film = Film { width, height, frames: panels.pictures(), colours: ask.colours, fps: ask.fps };
    film.write(ask.out)?;
    let frames = if ending == "png" { 1 } else { film.frames.len() };
    let columns = COLUMNS.join(", ");
    let out = ask.out.display();
    print(&format!("{out} ({width}x{height}, {frames} frames): one row per channel; columns: {columns}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Pixels of a panel in a gallery.
const PANEL: usize = 64;
/// Channels that are shown there.
const MOST_CHANNELS: usize = 3;

const STYLE: &str = "<style>
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(420px,1fr));gap:1rem}
.card{border:1px solid var(--line);border-radius:6px;padding:.8rem}.card img{width:100%;image-rendering:pixelated}
.card h2{margin:.2rem 0}.card table{font-size:12px}.flag{color:#c33}select{font:inherit}
</style>
";

/// Sorts cards by a feature; cards without a number come last.
const SCRIPT: &str = "<script>
const cards=document.querySelector('.cards');
document.querySelector('#by').onchange=event=>{
  const by=+event.target.value,of=card=>by<0?-card.dataset.k:JSON.parse(card.dataset.features)[by]??-Infinity;
  [...cards.children].sort((a,b)=>of(b)-of(a)).forEach(card=>cards.append(card));
};
</script>
";

pub(super) fn gallery(
    folder: &Path,
    out: &Path,
    limit: u32,
    frames: u32,
    colours: Colours,
) -> Result<ExitCode, Failure> {
    let (collection, store) = open(folder)?;
    let names = feature_names(folder)?;
    let chosen: Vec<u32> =
        (0..store.done().len()).filter(|&k| store.done()[k]).map(|k| k as u32).take(limit as usize).collect();
    let (done, s) = (store.done().iter().filter(|&&done| done).count(), &collection.settings);
    let mut body = format!(
        "{STYLE}<h1>{}</h1>\n<p class=\"dim\">{} of {done} operators, {} realisations, {} steps, seed {}. Rows: channels. Columns: {}.</p>\n\
         <p>Sorted by <select id=\"by\"><option value=\"-1\">number</option>",
        escape(&folder.display().to_string()),
        chosen.len(),
        s.realisations,
        s.steps,
        s.seed,
        COLUMNS.join(", "),
    );
    for (i, name) in names.iter().enumerate() {
        body += &format!("<option value=\"{i}\">{}</option>", escape(name));
    }
    body += "</select></p>\n<div class=\"cards\">\n";
    for &k in &chosen {
        body += &card(&collection, &store, k, &names, frames, colours)?;
    }
    body += "</div>\n";
    body += SCRIPT;
    write_whole(out, html::page(&format!("operators of {}", folder.display()), &body).as_bytes())?;
    print(&format!("{} ({} of {done} operators)\n", out.display(), chosen.len()))?;
    Ok(ExitCode::SUCCESS)
}

fn card(
    collection: &Collection,
    store: &Shards,
    k: u32,
    names: &[String],
    frames: u32,
    colours: Colours,
) -> Result<String, Failure> {
    let (sampled, s) = (collection.sampled(k), &collection.settings);
    // As many moments as fit, from the first step to the last.
    let moments = frames.min(s.steps + 1);
    let at = |i: u32| (u64::from(i) * u64::from(s.steps) / u64::from((moments - 1).max(1))) as u32;
    // Of stored fields those that are there.
    let at = |i: u32| at(i) / s.trajectory_every * s.trajectory_every;
    let mut times: Vec<u32> = (0..moments).map(at).collect();
    times.dedup();
    let shown = s.channels.min(MOST_CHANNELS);
    let mut panels = Panels::new(sampled.operator.grid, shown, PANEL);
    look(collection, store, k, &times, &mut |fields| {
        let few: Vec<f32> = fields.chunks_exact(s.channels).flat_map(|pixel| &pixel[..shown]).copied().collect();
        panels.see(&few);
    })?;
    let (width, height) = panels.size();
    let film = Film { width, height, frames: panels.pictures(), colours, fps: 6 };
    let numbers = store.numbers("features", k as usize)?.unwrap_or_default();
    let means: Vec<Option<f64>> = numbers.iter().take(names.len()).map(|x| x.is_finite().then_some(*x)).collect();
    let flagged = store.numbers("flags", k as usize)?.and_then(|flags| flags.first().copied()).unwrap_or(0.0) as u8;
    let flag = |bit: u8, name: &'static str| if flagged & bit != 0 { name } else { "" };
    let words: Vec<&str> = [
        flag(flags::NOT_FINITE, "not finite"),
        flag(flags::STATIONARY, "stationary"),
        flag(flags::CONSTANT, "constant at the end"),
    ]
    .into_iter()
    .filter(|word| !word.is_empty())
    .collect();
    let parameters: String = collection
        .space
        .parameters
        .iter()
        .zip(&sampled.values)
        .map(|(p, &value)| format!("{} {}", p.name, escape(&p.map.show(value))))
        .collect::<Vec<_>>()
        .join(" · ");
    let mut rows = String::new();
    for (i, name) in names.iter().enumerate() {
        let cell = |statistic: usize| numbers.get(statistic * names.len() + i).map_or_else(String::new, |x| number(*x));
        rows += &format!(
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
            escape(name),
            cell(0),
            cell(1),
            cell(2)
        );
    }
    Ok(format!(
        "<div class=\"card\" data-k=\"{k}\" data-features='{}'>\n\
         <img alt=\"fields of operator {k}\" src=\"data:image/gif;base64,{}\">\n<h2>operator {k} <span class=\"flag\">{}</span></h2>\n\
         <p class=\"dim\">{parameters} · first field {}</p>\n<details><summary>{} features</summary>\n\
         <table><tr><th>feature</th><th>mean</th><th>std</th><th>range</th></tr>\n{rows}</table></details>\n</div>\n",
        json!(means),
        base64(&film.gif()?),
        words.join(", "),
        KINDS[sampled.kind].name,
        names.len(),
    ))
}

/// RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0u32, |word, i| word << 8 | u32::from(group.get(i).copied().unwrap_or(0)));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= group.len() { letter as char } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_the_standard() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (text, wanted) in cases {
            assert_eq!(super::base64(text.as_bytes()), wanted);
        }
    }
}

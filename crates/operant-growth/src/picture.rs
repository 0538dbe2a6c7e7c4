//! An episode of growth as a picture: how well the host does, and below it a row per slot with the stage of its seed.

use super::episode::{Episode, HISTORY};
use super::lifecycle::{Slot, Stage};
use operant_env::glyphs::write;
use operant_env::{Canvas, Color};
use operant_nn::grow::Blueprint;

const WIDTH: f32 = 640.0;
const EDGE: f32 = 16.0;
/// Height of what is above the slots, and of a slot's row.
const HEAD: f32 = 118.0;
const ROW: f32 = 44.0;
/// Width of a bar that shows 0 to 1.
const BAR: f32 = 130.0;
/// Points of contribution that fill half a bar.
const MOST_POINTS: f32 = 20.0;

const INK: Color = [38, 42, 52];
const PALE: Color = [222, 226, 234];
const BLUE: Color = [47, 111, 187];
const GREEN: Color = [52, 148, 92];
const RED: Color = [196, 62, 58];

/// A seed's stage as a colour: grey where there is none, warm while it is young, green once it is kept.
fn color_of(stage: Stage) -> Color {
    match stage {
        Stage::Dormant => PALE,
        Stage::Germinated => [247, 220, 140],
        Stage::Training => [244, 186, 84],
        Stage::Blending => [150, 196, 235],
        Stage::Holding => [104, 158, 214],
        Stage::Fossilised => [124, 200, 150],
        Stage::Pruned | Stage::Embargoed | Stage::Resetting => [224, 160, 156],
    }
}

/// A bar from `(x, y)` of which a share is full.
fn bar(canvas: &mut Canvas, x: f32, y: f32, width: f32, share: f32, color: Color) {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    canvas.fill_rect(x, y, x + width, y + 14.0, PALE);
    canvas.fill_rect(x, y, x + width * share, y + 14.0, color);
}

fn head(canvas: &mut Canvas, episode: &Episode) {
    let state = &episode.state;
    let (epochs, width) = (episode.frame.rules.epochs, WIDTH - 2.0 * EDGE);
    write(canvas, (EDGE, 16.0), &format!("epoch {} of {epochs}", state.epoch), 2, INK);
    let numbers = format!("loss {:.3}  seeds {}", episode.loss(), episode.seed_parameters());
    write(canvas, (EDGE + 300.0, 16.0), &numbers, 2, INK);
    bar(canvas, EDGE, 38.0, width, state.epoch as f32 / epochs.max(1) as f32, INK);
    write(canvas, (EDGE, 66.0), &format!("accuracy {:.1} %", episode.accuracy()), 2, INK);
    bar(canvas, EDGE, 88.0, width - 80.0, episode.accuracy() / 100.0, BLUE);
    // Accuracies of the last epochs, the newest on the right.
    let last = state.history.iter().rev().take(HISTORY);
    for (ago, [_, accuracy]) in last.enumerate() {
        let (x, share) = (WIDTH - EDGE - 12.0 * (ago + 1) as f32, (accuracy / 100.0).clamp(0.0, 1.0));
        canvas.fill_rect(x, 102.0 - 36.0 * share, x + 9.0, 102.0, BLUE);
    }
}

fn row(canvas: &mut Canvas, y: f32, number: usize, slot: &Slot, blueprint: Option<usize>) {
    let middle = y + 15.0;
    canvas.fill_rect(EDGE, y, WIDTH - EDGE, y + 1.0, PALE);
    write(canvas, (EDGE, middle), &number.to_string(), 2, INK);
    canvas.fill_rect(EDGE + 22.0, y + 8.0, EDGE + 156.0, y + ROW - 6.0, color_of(slot.stage));
    write(canvas, (EDGE + 28.0, middle), slot.stage.name(), 2, INK);
    if let Some(blueprint) = blueprint {
        write(canvas, (EDGE + 166.0, middle), Blueprint::ALL[blueprint].1, 2, INK);
    }
    bar(canvas, EDGE + 338.0, middle, BAR, slot.alpha.value, BLUE);
    // What the seed contributes goes right or left of the middle.
    let (zero, half) = (EDGE + 545.0, BAR / 2.0);
    canvas.fill_rect(zero - half, middle, zero + half, middle + 14.0, PALE);
    if let Some(points) = slot.measured.contribution.filter(|points| points.is_finite()) {
        let end = zero + half * (points / MOST_POINTS).clamp(-1.0, 1.0);
        let color = if points < 0.0 { RED } else { GREEN };
        canvas.fill_rect(zero.min(end), middle, zero.max(end), middle + 14.0, color);
    }
    canvas.fill_rect(zero, middle - 3.0, zero + 1.0, middle + 17.0, INK);
}

/// Draws an episode as it is now.
pub(super) fn draw(episode: &Episode) -> Canvas {
    const TITLES: f32 = 24.0;
    let slots = &episode.state.slots;
    let mut canvas = Canvas::new(WIDTH as usize, (HEAD + TITLES + ROW * slots.len() as f32 + EDGE) as usize);
    head(&mut canvas, episode);
    for (x, title) in [(22.0, "stage"), (166.0, "blueprint"), (338.0, "alpha"), (480.0, "points")] {
        write(&mut canvas, (EDGE + x, HEAD + 4.0), title, 2, INK);
    }
    for (number, slot) in slots.iter().enumerate() {
        let blueprint = episode.state.planted[number].map(|planted| planted.blueprint);
        row(&mut canvas, HEAD + TITLES + ROW * number as f32, number, slot, blueprint);
    }
    canvas
}

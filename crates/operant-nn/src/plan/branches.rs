//! Parts of a network that do not depend on each other, as an actor and a critic of their own: for few rows two threads then have
//! one part each, with all its rows, instead of half the rows of both. No weight and no gradient goes from core to core, and each
//! thread packs only what it reads, if weights are packed in turn.
//!
//! Invariant: what steps of one branch write on the way there, or on the way back, those of the other neither read nor write, and
//! no sum is of both. Steps between see the memory of their thread's rows alone. Threads may be a pass apart: one between
//! and one on the way there are then on different halves of the rows, and so are one on the way back and one between, but for steps back
//! of different branches.

use super::build::{Buffer, Place, Recipe, Step, Work};
use super::memory::ALIGN;
use std::ops::Range;

/// The steps of one thread.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    /// Before the last that multiplies; from it on.
    pub(super) forward: [Vec<usize>; 2],
    /// Up to the first that multiplies; behind it.
    pub(super) backward: [Vec<usize>; 2],
    /// What its last steps there make for the steps between, and what those make for its first on the way back.
    pub(super) handed: Vec<Buffer>,
    pub(super) returned: Vec<Buffer>,
    /// Sums that it begins, and adds up for all groups: also those in its share of the parameters that only steps between add to.
    pub(super) sums: Vec<Range<usize>>,
    /// Those among them that none of its steps begins.
    pub(super) cleared: Vec<Range<usize>>,
}

/// Two branches, and the steps between their ways there and back.
#[derive(Clone, Debug)]
pub(super) struct Branches {
    pub(super) two: [Branch; 2],
    pub(super) joint: Range<usize>,
}

impl Branches {
    /// Whether all these sums are of a thread's branch.
    pub(super) fn has_sums(&self, thread: usize, range: &Range<usize>) -> bool {
        self.two[thread].sums.iter().any(|sums| sums.start <= range.start && range.end <= sums.end)
    }
}

/// Most steps that are looked at: the time to do so is their square.
const MOST_STEPS: usize = 64;
/// Least share of the work of the lesser branch.
const LEAST_SHARE: f64 = 0.4;

/// Memory that a step touches: which, from, to, and whether it writes there.
type Touched = (u8, usize, usize, bool);

impl Recipe {
    /// Branches of a training plan, if it has two that are about as much work and all of it.
    pub(super) fn find_branches(&self) -> Option<Branches> {
        if !self.training || self.stages != 1 || self.steps.len() > MOST_STEPS {
            return None;
        }
        let touched: Vec<Vec<Touched>> = self.steps.iter().map(|step| self.touched(step)).collect();
        let forward = self.grow(0..self.steps.len(), &touched)?;
        let backward = self.grow((0..self.steps.len()).rev(), &touched)?;
        let joint = forward.iter().flatten().count()..self.steps.len() - backward.iter().flatten().count();
        if joint.start > joint.end || self.steps[joint.clone()].iter().any(|step| self.work(step).is_some()) {
            return None;
        }
        // Both ways of a node on one thread, which then steps the weights that it reads.
        let nodes = |steps: &[usize]| -> Vec<usize> {
            let mut nodes: Vec<usize> =
                steps.iter().filter_map(|&step| Some(self.work(&self.steps[step])?.0)).collect();
            nodes.sort_unstable();
            nodes
        };
        let [first, second] = forward;
        let other_way = |steps: &Vec<usize>| backward.iter().find(|back| nodes(back) == nodes(steps)).cloned();
        let mut ways = [(other_way(&first)?, first), (other_way(&second)?, second)];
        ways.iter_mut().for_each(|(back, _)| back.sort_unstable());
        let sums_of = |steps: &[usize]| {
            let written = steps.iter().flat_map(|&step| &touched[step]).filter(|touched| touched.0 == SUM && touched.3);
            joined(written.map(|&(_, from, to, _)| from..to).collect())
        };
        // Parameters come in the order in which threads have their shares of them when they are stepped.
        ways.sort_by_key(|(back, _)| sums_of(back).first().map_or(usize::MAX, |range| range.start));
        let work = |steps: &[usize]| {
            steps.iter().filter_map(|&step| self.work(&self.steps[step])).map(|(_, flops)| flops).sum()
        };
        let shares: [u64; 2] = ways.each_ref().map(|(back, _)| work(back));
        if (shares[0].min(shares[1]) as f64) < LEAST_SHARE * (shares[0] + shares[1]) as f64 {
            return None;
        }
        let [first, second] = ways.each_ref().map(|(back, there)| sums_of(&[&back[..], &there[..]].concat()));
        if first.iter().any(|range| common(range, &second).next().is_some()) {
            return None;
        }
        // What neither writes, such as gradients that steps between make, is of the thread whose share of the parameters it lies in.
        let begins = second.first().map_or(self.sums_len, |range| range.start);
        let second: Vec<_> = common(&(begins..self.sums_len), &others(&first, self.sums_len)).collect();
        let mut sums = [others(&second, self.sums_len), second].into_iter();
        let mut two: [Branch; 2] = ways.map(|(backward, forward)| {
            let sums = sums.next().unwrap_or_default();
            let cleared = self.cleared.iter().flat_map(|range| common(range, &sums)).collect();
            let multiplies = |step: &usize| self.work(&self.steps[*step]).is_some();
            let last = forward.iter().rposition(multiplies).unwrap_or(0);
            let first = backward.iter().position(multiplies).map_or(0, |first| first + 1);
            let [forward, backward] =
                [forward.split_at(last), backward.split_at(first)].map(|(a, b)| [a.to_vec(), b.to_vec()]);
            Branch { forward, backward, handed: vec![], returned: vec![], sums, cleared }
        });
        let passed = |from: &[usize], to: &[usize]| -> Vec<Buffer> {
            let read: Vec<Buffer> = to.iter().flat_map(|&step| self.steps[step].reads()).collect();
            let written = from.iter().flat_map(|&step| self.steps[step].writes());
            written.filter(|buffer| read.contains(buffer)).collect()
        };
        let between: Vec<usize> = joint.clone().collect();
        for branch in &mut two {
            branch.handed = passed(&branch.forward[1], &between);
            branch.returned = passed(&between, &branch.backward[0]);
        }
        Some(Branches { two, joint })
    }

    /// Node and work of a step that multiplies.
    fn work(&self, step: &Step) -> Option<(usize, u64)> {
        let (Work::Forward { call } | Work::Backward { call, .. }) = step.work else { return None };
        let node = &self.nodes[call];
        (node.flops > 0 || !node.packings.is_empty()).then_some((call, node.flops))
    }

    fn touched(&self, step: &Step) -> Vec<Touched> {
        let of = |(buffer, write): (usize, bool)| {
            let slot = self.slots[buffer];
            match slot.place {
                Place::Tile(at) => Some((TILE, at, at + slot.len * self.tile_rows, write)),
                Place::Full(at) => Some((FULL, at, at + slot.len * self.max_rows, write)),
                Place::Sum(at) => Some((SUM, at, (at + slot.len).next_multiple_of(ALIGN), write)),
                Place::Feed(_) | Place::Param(_) => None,
            }
        };
        let reads = step.reads().map(|buffer| (buffer, false));
        reads.chain(step.writes().map(|buffer| (buffer, true))).filter_map(of).collect()
    }

    /// Takes steps in turn for as long as those that multiply stay in two sets, or more, that do not touch each other's memory. `None` if
    /// they never come to two.
    fn grow(&self, order: impl Iterator<Item = usize>, touched: &[Vec<Touched>]) -> Option<[Vec<usize>; 2]> {
        let mut sets: Vec<Vec<usize>> = Vec::new();
        let multiplies = |set: &Vec<usize>| set.iter().any(|&step| self.work(&self.steps[step]).is_some());
        for step in order {
            let meets = |set: &Vec<usize>| set.iter().any(|&other| collide(&touched[step], &touched[other]));
            if sets.iter().filter(|set| meets(set) && multiplies(set)).count() > 1 {
                break;
            }
            let (met, apart): (Vec<_>, Vec<_>) = sets.into_iter().partition(meets);
            sets = apart;
            sets.push(met.into_iter().flatten().chain([step]).collect());
        }
        let (heavy, light): (Vec<_>, Vec<_>) = sets.into_iter().partition(multiplies);
        let [mut first, mut second] = <[Vec<usize>; 2]>::try_from(heavy).ok()?;
        first.extend(light.into_iter().flatten());
        [&mut first, &mut second].into_iter().for_each(|set| set.sort_unstable());
        Some([first, second])
    }
}

const TILE: u8 = 0;
const FULL: u8 = 1;
const SUM: u8 = 2;

fn collide(a: &[Touched], b: &[Touched]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.0 == y.0 && x.1 < y.2 && y.1 < x.2 && (x.3 || y.3)))
}

/// Ranges in order, those that touch as one.
fn joined(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

/// What lies between ranges, up to `len`.
fn others(ranges: &[Range<usize>], len: usize) -> Vec<Range<usize>> {
    let starts = [0].into_iter().chain(ranges.iter().map(|range| range.end));
    let ends = ranges.iter().map(|range| range.start).chain([len]);
    starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty()).collect()
}

/// What a range has in common with others.
fn common<'a>(range: &'a Range<usize>, ranges: &'a [Range<usize>]) -> impl Iterator<Item = Range<usize>> + 'a {
    ranges.iter().map(|other| range.start.max(other.start)..range.end.min(other.end)).filter(|range| !range.is_empty())
}

#[cfg(test)]
mod tests {
    use crate::{Act, Graph, Init, Node, Options, Plan, nets};

    /// Steps of both branches there and back, and those between, of a network made of two by `join`.
    fn found(names: [&str; 2], join: impl Fn(&mut Graph, [Node; 2]) -> Node) -> Option<[Vec<String>; 5]> {
        let mut g = Graph::new();
        let x = g.input("x", [4]);
        let two = names.map(|name| nets::mlp(&mut g, name, x, &[64, 64, 1], Act::Tanh, 1.0).unwrap());
        let joined = join(&mut g, two);
        let loss = g.mean(joined, 1).unwrap();
        let plan = Plan::<f32>::training(&g, loss, 256, &Options::default()).unwrap();
        let recipe = &plan.recipe;
        let branches = recipe.branches.as_ref()?;
        let named = |steps: &[usize]| steps.iter().map(|&i| recipe.steps[i].name.clone()).collect();
        for branch in &branches.two {
            // Weights are packed for one step of each part in which halves follow each other whole.
            let packed = |steps: &[usize]| steps.iter().filter(|&&i| recipe.work(&recipe.steps[i]).is_some()).count();
            assert_eq!([&branch.forward[1], &branch.backward[0]].map(|steps| packed(steps)), [1, 1]);
        }
        let [a, b] = &branches.two;
        // Every sum is added up by one thread.
        let mut sums: Vec<_> = a.sums.iter().chain(&b.sums).cloned().collect();
        sums.sort_by_key(|range| range.start);
        assert!(sums[0].start == 0 && sums.windows(2).all(|two| two[0].end == two[1].start), "{sums:?}");
        assert_eq!(sums.last().unwrap().end, recipe.sums_len);
        let joint: Vec<usize> = branches.joint.clone().collect();
        let [a, b] = [a, b].map(|branch| [branch.forward.concat(), branch.backward.concat()]);
        Some([&a[0], &b[0], &joint, &a[1], &b[1]].map(|steps| named(steps)))
    }

    #[test]
    fn networks_that_meet_in_a_loss_are_branches() {
        let [actor, critic, joint, actor_back, critic_back] =
            found(["actor", "critic"], |g, [a, b]| g.mul(a, b).unwrap()).unwrap();
        assert_eq!([&actor[0], &critic[0]], ["actor.0..4", "critic.0..4"]);
        assert_eq!([actor.len(), critic.len()], [1, 1]);
        assert!(
            !joint.is_empty() && joint.iter().all(|name| !name.contains("actor") && !name.contains("critic")),
            "{joint:?}"
        );
        assert!(actor_back.contains(&"gradient of actor.0..4".into()), "{actor_back:?}");
        assert!(critic_back.contains(&"gradient of critic.0..4".into()), "{critic_back:?}");
    }

    #[test]
    fn networks_that_need_each_other_or_share_weights_are_not() {
        let deeper = found(["a", "b"], |g, [a, b]| {
            let both = g.concat(&[a, b]).unwrap();
            nets::mlp(g, "more", both, &[64, 64, 1], Act::Tanh, 1.0).unwrap()
        });
        assert!(deeper.is_none(), "{deeper:?}");
        let shared = found(["a", "b"], |g, [a, b]| {
            let weight = g.param("weight", [1, 1], Init::HeUniform);
            let layer = crate::ops::Linear { bias: false, act: Act::Identity };
            let two = [a, b].map(|x| g.apply("shared", layer, &[x, weight]).unwrap());
            g.mul(two[0], two[1]).unwrap()
        });
        assert!(shared.is_none(), "{shared:?}");
    }
}

//! What networks of a group are told to be, and their scores: of what is asked of one network, what is alike is made once.

use super::super::Score;
use super::{GrownGroup, Recording, SLOT_PARTS, THREADS, control, has, part, stretch};
use crate::CudaPlan;
use crate::ops::Graft;
use operant_base::Result;
use operant_device::cuda::{DevicePtr, Graph as Recorded, Params as Argument};

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct JudgeArgs {
    logits: DevicePtr,
    targets: DevicePtr,
    samples: DevicePtr,
    rows: DevicePtr,
    losses: DevicePtr,
    right: DevicePtr,
    stride: u64,
    batch: u32,
    classes: u32,
}

impl Argument for JudgeArgs {}

/// What a group of a plan is.
pub(super) struct Told<'a> {
    pub(super) network: usize,
    pub(super) alphas: &'a [f32],
    /// The first slot in which its α differs from those of another group of the same network and samples, and that group: what enters
    /// the slot and its seeds are that one's.
    pub(super) follows: Option<(usize, usize)>,
}

/// What a group judges: which one asked for, on which batch.
#[derive(Clone, Copy)]
struct Item {
    at: usize,
    number: usize,
    /// As in [`Told`].
    follows: Option<(usize, usize)>,
}

/// Of each of these the one before it, of the same network, with which it has the most slots from the first on alike, and how many.
fn followed(asked: &[(usize, Vec<f32>)]) -> Vec<Option<(usize, usize)>> {
    let of = |at: usize| {
        let (network, alphas) = &asked[at];
        let before = asked[..at].iter().enumerate().filter(|(_, (other, _))| other == network);
        let alike = before.filter_map(|(other, (_, theirs))| {
            // The same again shares all but the last slot.
            let last = alphas.len().checked_sub(1)?;
            let first = alphas.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(last);
            Some((first, other))
        });
        // Of several the first: it has made what enters that slot itself.
        alike.max_by_key(|(first, other)| (*first, std::cmp::Reverse(*other)))
    };
    (0..asked.len()).map(of).collect()
}

impl GrownGroup {
    /// Tells a plan what its groups have: `of` gives what a group is, or none if it rests. Seeds that are not heard have a part only where
    /// they learn or where another group hears them.
    pub(super) fn tell<'a>(
        &'a self,
        plan: &CudaPlan,
        learns: bool,
        of: impl Fn(usize) -> Option<Told<'a>>,
    ) -> Result<()> {
        let (groups, slots) = (plan.groups(), self.shapes.len());
        let told: Vec<Option<Told>> = (0..groups).map(of).collect();
        let mut absent = vec![1u32; plan.parts() * groups];
        let mut leaders: Vec<u32> = if learns { vec![] } else { (0..slots).flat_map(|_| 0..groups as u32).collect() };
        for slot in 0..slots {
            let (mut controls, mut ways) = (vec![0.0f32; 2 * groups], vec![0.0f32; groups]);
            for (group, told) in told.iter().enumerate() {
                let Some(Told { network, alphas, follows }) = told else { continue };
                let Some(seed) = self.topologies[*network].seeds[slot] else { continue };
                if learns || alphas[slot] != 0.0 {
                    let chosen = (alphas[slot], seed.blend, seed.blueprint.index() - 1);
                    controls[2 * group..][..2].copy_from_slice(&Graft::control(Some(chosen)));
                    ways[group] = f32::from(u8::from(!seed.detached));
                }
                let by = match *follows {
                    Some((first, _)) if slot < first => continue,
                    Some((first, leader)) if slot == first => leader,
                    _ => group,
                };
                if learns || alphas[slot] != 0.0 {
                    for which in (0..SLOT_PARTS).filter(|which| has(Some(seed), *which)) {
                        absent[part(slot, which) * groups + by] = 0;
                    }
                }
            }
            for (input, values) in [(control(slot), &controls), (control(slot) + 1, &ways)] {
                plan.feed(input).map_or(Ok(()), |feed| feed.upload(values))?;
            }
        }
        if !learns {
            for (group, told) in told.iter().enumerate() {
                let Some(told) = told else { continue };
                let first = told.follows.map_or(0, |(slot, _)| slot + 1);
                for number in first..=slots {
                    absent[stretch(slots, number) as usize * groups + group] = 0;
                }
                if let Some((slot, leader)) = told.follows {
                    leaders[slot * groups + group] = leader as u32;
                }
            }
            plan.leaders().upload(&leaders)?;
        }
        plan.absent().upload(&absent)
    }

    /// Loss and accuracy over all validation samples of networks with these α, as many as are asked for.
    pub fn score(&mut self, asked: &[(usize, Vec<f32>)]) -> Result<Vec<Score>> {
        let batch = self.training.batch;
        let batches = self.validated.div_ceil(batch);
        let groups = self.judge.groups();
        let parts = self.parts(|slot, which| {
            asked
                .iter()
                .any(|(network, alphas)| alphas[slot] != 0.0 && has(self.topologies[*network].seeds[slot], which))
        });
        if self.judges.as_ref().is_none_or(|recording| recording.parts != parts) {
            let graph = self.record_judging(&parts)?;
            self.judges = Some(Recording { parts, graph });
        }
        // What is asked of one network goes side by side, batch by batch, so that what is alike is made once.
        let mut sets: Vec<(usize, usize)> = Vec::new();
        for (at, (network, _)) in asked.iter().enumerate() {
            match sets.last_mut() {
                Some((first, len)) if asked[*first].0 == *network && *len < groups => *len += 1,
                _ => sets.push((at, 1)),
            }
        }
        let mut units = sets.iter().flat_map(|set| (0..batches).map(move |number| (*set, number))).peekable();
        let mut sums = vec![(0.0f64, 0u64); asked.len()];
        let (mut losses, mut right) = (vec![0.0f64; groups], vec![0u32; groups]);
        while units.peek().is_some() {
            let mut items: Vec<Item> = Vec::new();
            while let Some(((first, len), number)) = units.next_if(|((_, len), _)| items.len() + len <= groups) {
                let begin = items.len();
                let follows = followed(&asked[first..first + len]);
                let placed = follows.iter().map(|follows| follows.map(|(slot, leader)| (slot, begin + leader)));
                items.extend(placed.enumerate().map(|(i, follows)| Item { at: first + i, number, follows }));
            }
            let each = |what: &dyn Fn(usize, usize) -> usize| -> Vec<u32> {
                let mut all: Vec<u32> = items.iter().map(|item| what(item.at, item.number) as u32).collect();
                all.resize(groups, 0);
                all
            };
            self.judge.network_of().upload(&each(&|at, _| asked[at].0))?;
            self.judge.samples_of().upload(&each(&|_, number| number))?;
            self.judge.rows().upload(&each(&|_, number| batch.min(self.validated - number * batch)))?;
            self.tell(&self.judge, false, |group| {
                let Item { at, follows, .. } = *items.get(group)?;
                Some(Told { network: asked[at].0, alphas: &asked[at].1, follows })
            })?;
            self.judges.as_ref().map_or(Ok(()), |recording| recording.graph.launch())?;
            self.memory.judged_losses.download(0, &mut losses)?;
            self.memory.judged_right.download(0, &mut right)?;
            for (group, item) in items.iter().enumerate() {
                let (loss, count) = &mut sums[item.at];
                *loss += losses[group];
                *count += u64::from(right[group]);
            }
        }
        let count = self.validated;
        let mean = |(loss, right): (f64, u64)| Score {
            loss: (loss / count as f64) as f32,
            accuracy: right as f32 / count as f32,
        };
        Ok(sums.into_iter().map(mean).collect())
    }

    fn record_judging(&self, parts: &[bool]) -> Result<Recorded> {
        let (logits, stride) = self.judge.output(self.judged_logits).expect("an output that the plan was built with");
        let args = JudgeArgs {
            logits,
            targets: self.memory.validation_targets.pointer(),
            samples: self.judge.samples_of().pointer(),
            rows: self.judge.rows().pointer(),
            losses: self.memory.judged_losses.pointer(),
            right: self.memory.judged_right.pointer(),
            stride: stride as u64,
            batch: self.training.batch as u32,
            classes: self.topologies[0].classes as u32,
        };
        Recorded::record(&self.gpu, || {
            // The host's parts are always there.
            self.judge.run(|part| parts.get(part as usize).copied().unwrap_or(true)).map(drop)?;
            self.kernels.judge.launch(self.judge.groups() as u32, THREADS as u32, &args)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::followed;

    #[test]
    fn what_is_alike_is_made_once_by_one_that_makes_it() {
        let table = |alphas: &[[f32; 3]]| alphas.iter().map(|alphas| (0, alphas.to_vec())).collect::<Vec<_>>();
        let asked = table(&[[0.5, 0.5, 0.5], [0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 1.0], [0.0, 0.5, 1.0]]);
        assert_eq!(followed(&asked), [None, Some((0, 0)), Some((1, 0)), Some((2, 0)), Some((2, 1))]);
        // The same again, also with others between, and another network.
        let mut asked = table(&[[0.5; 3], [0.5; 3], [0.5, 1.0, 0.5], [0.5; 3], [-0.0, 0.5, 0.5], [0.0, 0.5, 0.5]]);
        asked.push((1, vec![0.5, 0.5, 0.0]));
        let twice = [Some((2, 0)), Some((1, 0)), Some((2, 0)), Some((0, 0)), Some((2, 4))];
        assert_eq!(followed(&asked), [&[None][..], &twice, &[None]].concat());
        // Of all coalitions whoever is followed from a slot on follows others from an earlier one.
        let all: Vec<[f32; 3]> = (0..27).map(|i| [i % 3, i / 3 % 3, i / 9].map(|level| level as f32 / 2.0)).collect();
        let follows = followed(&table(&all));
        for (at, &follow) in follows.iter().enumerate().skip(1) {
            let (slot, leader) = follow.unwrap();
            assert_eq!(all[at][..slot], all[leader][..slot]);
            assert!(leader < at && follows[leader].is_none_or(|(earlier, _)| earlier < slot), "{at} follows {leader}");
        }
    }
}

//! Which rows go together, and in what order their sums are added: by the number of rows alone, whoever has them.

use super::build::Recipe;

/// How rows are cut: into groups of as many rows each, groups into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) groups: usize,
    /// Of all groups.
    pub(super) tiles: usize,
    pub(super) tile_rows: usize,
    /// Groups have whole blocks of so many rows, one more or less; the last block may be short.
    block: usize,
}

/// Work of a group, in products and sums: enough to make handing it to a thread worth while, in inference and in training.
const GROUP_FLOPS: [u64; 2] = [2_000_000, 4_000_000];
/// The same for each of its sums, which are begun and added up for every group.
const GROUP_FLOPS_PER_SUM: u64 = 400;
/// Rows of which groups and tiles have a multiple, if they have more than two times as many.
const BLOCK: usize = 16;
/// Most groups: the most threads that one run can use.
pub(super) const MAX_GROUPS: usize = 16;
/// Most memory for the sums of groups, in elements.
const MAX_GROUP_SUMS: usize = 8 << 20;

impl Cut {
    pub(super) fn new(recipe: &Recipe, rows: usize, threads: usize) -> Self {
        let work = recipe.flops.saturating_mul(rows as u64).saturating_mul(if recipe.training { 3 } else { 1 });
        // A row of a network without products still costs a pass over its tile.
        let work = work.max((rows * recipe.tile_len / recipe.tile_rows.max(1)) as u64 * 8);
        let least = GROUP_FLOPS[usize::from(recipe.training)].max(recipe.sums_len as u64 * GROUP_FLOPS_PER_SUM);
        let memory = (MAX_GROUP_SUMS / recipe.sums_len.max(1)).max(2);
        let most = MAX_GROUPS.min(memory).min(rows / recipe.least_rows).min((work / least) as usize);
        let groups = if recipe.sums_len == 0 {
            most.min(threads).max(1)
        } else {
            // A power of two, so that two or four threads have equal shares.
            1 << most.max(1).ilog2()
        };
        // Products of whole blocks of rows are fastest.
        let block = if rows > 2 * BLOCK * groups { BLOCK } else { 1 };
        let most_rows = (rows.div_ceil(block).div_ceil(groups) * block).min(rows);
        let tiles = most_rows.div_ceil(recipe.tile_rows).max(1);
        let mut tile_rows = most_rows.div_ceil(tiles).max(1);
        if tile_rows > 2 * BLOCK {
            tile_rows = tile_rows.next_multiple_of(BLOCK).min(recipe.tile_rows);
        }
        Self { groups, tiles: tiles * groups, tile_rows, block }
    }

    /// Most groups of any number of rows that the recipe runs.
    pub(super) fn most_groups(recipe: &Recipe, threads: usize) -> usize {
        Self::new(recipe, recipe.max_rows, threads).groups
    }

    /// Most tiles of a thread.
    pub(super) fn tiles_of(&self, threads: usize) -> usize {
        self.groups.div_ceil(threads) * (self.tiles / self.groups)
    }

    /// Whether half of the groups have room in a tile.
    pub(super) fn has_room_for_branches(&self, recipe: &Recipe) -> bool {
        self.groups >= 2 && self.tiles == self.groups && self.groups / 2 * self.tile_rows <= recipe.tile_rows
    }

    /// First and last row of a tile.
    pub(super) fn rows(&self, tile: usize, rows: usize) -> (usize, usize) {
        let (tiles, blocks) = (self.tiles / self.groups, rows.div_ceil(self.block));
        let [first, end] = [0, 1].map(|next| ((tile / tiles + next) * blocks / self.groups * self.block).min(rows));
        let from = (first + tile % tiles * self.tile_rows).min(end);
        (from, (from + self.tile_rows).min(end))
    }
}

/// Who has which groups, and where their sums lie.
///
/// Sums of neighbouring groups are added in pairs, then pairs of pairs, whoever computed them (those that a later stage reads one after the
/// other, when theirs ends): so a thread adds up most of its own as it
/// goes, while they are in its caches, and the order does not depend on the number of threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    pub(super) groups: usize,
    pub(super) shares: usize,
}

impl Shares {
    pub(super) fn of(self, share: usize) -> std::ops::Range<usize> {
        share * self.groups / self.shares..(share + 1) * self.groups / self.shares
    }

    /// First group of the share that has this one.
    fn first(self, group: usize) -> usize {
        let of = |share: usize| self.of(share);
        (0..self.shares).map(of).find(|share| share.contains(&group)).map_or(0, |share| share.start)
    }

    /// Number of the sums that a group begins, and that hold all of a pair once it is added up: those of its share that wait for
    /// their other half lie before them.
    pub(super) fn sums(self, group: usize) -> usize {
        let first = self.first(group);
        let (mut at, mut waiting) = (first, 0);
        while at < group {
            at += 1 << at.trailing_zeros().min((group - at).ilog2());
            waiting += 1;
        }
        first + waiting
    }

    /// Calls `add(to, from)` with numbers of sums for the pairs that a group is the last of, within its share.
    pub(super) fn end(self, group: usize, mut add: impl FnMut(usize, usize)) {
        let (first, mut half) = (self.first(group), 1);
        while group & half != 0 && first + 2 * half <= group + 1 {
            add(self.sums(group + 1 - 2 * half), self.sums(group + 1 - half));
            half *= 2;
        }
    }

    /// The same for all pairs that no share has to itself.
    pub(super) fn end_all(self, mut add: impl FnMut(usize, usize)) {
        let mut half = 1;
        while half < self.groups {
            for group in (0..self.groups).step_by(2 * half) {
                if self.first(group) != self.first(group + 2 * half - 1) {
                    add(self.sums(group), self.sums(group + half));
                }
            }
            half *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Act, Graph, Options, Plan, nets};

    /// How groups are added up, written out: each number of sums holds a formula.
    fn formula(shares: Shares) -> String {
        let mut sums = vec![String::new(); shares.groups];
        let add = |sums: &mut Vec<String>, to: usize, from: usize| {
            let [a, b] = [to, from].map(|number| std::mem::take(&mut sums[number]));
            assert!(!a.is_empty() && !b.is_empty(), "{to} or {from} holds nothing: {shares:?}");
            sums[to] = format!("({a}+{b})");
        };
        // The last share first: none may depend on another.
        for share in (0..shares.shares).rev() {
            for group in shares.of(share) {
                let number = shares.sums(group);
                assert!(sums[number].is_empty(), "group {group} takes sums {number} that hold others: {shares:?}");
                sums[number] = group.to_string();
                shares.end(group, |to, from| add(&mut sums, to, from));
            }
        }
        shares.end_all(|to, from| add(&mut sums, to, from));
        assert!(sums[1..].iter().all(String::is_empty), "{sums:?} of {shares:?}");
        sums.swap_remove(0)
    }

    #[test]
    fn branches_run_where_half_of_the_groups_has_room_in_a_tile() {
        let mut g = Graph::new();
        let x = g.input("x", [4]);
        let two = ["actor", "critic"].map(|name| nets::mlp(&mut g, name, x, &[64, 64, 1], Act::Tanh, 1.0).unwrap());
        let loss = g.mul(two[0], two[1]).unwrap();
        let options = Options { tile_rows: Some(192), ..Options::threads(2) };
        let plan = Plan::<f32>::training(&g, loss, 1000, &options).unwrap();
        let recipe = &plan.recipe;
        assert!(recipe.branches.is_some());
        let rows_in_branches = [5, 100, 256, 257, 300, 384, 385, 700, 1000]
            .into_iter()
            .filter(|&rows| Cut::new(recipe, rows, 2).has_room_for_branches(recipe));
        assert_eq!(rows_in_branches.collect::<Vec<_>>(), [256, 257, 300, 384]);
    }

    #[test]
    fn groups_have_as_many_rows() {
        let mut g = Graph::new();
        let x = g.input("x", [64]);
        let y = nets::mlp(&mut g, "net", x, &[256, 256, 1], Act::Relu, 1.0).unwrap();
        for tile_rows in [1, 5, 20, 40, 48, 100, 192] {
            let options = Options { tile_rows: Some(tile_rows), ..Options::threads(7) };
            let training = Plan::<f32>::training(&g, y, 1100, &options).unwrap();
            let inference = Plan::<f32>::inference(&g, &[y], 1100, &options).unwrap();
            for (plan, threads, rows) in
                (1..=1100).flat_map(|rows| [(&training, 1, rows), (&inference, 1, rows), (&inference, 7, rows)])
            {
                let cut = Cut::new(&plan.recipe, rows, threads);
                let what = || format!("{rows} rows, {threads} threads: {cut:?}");
                let tiles: Vec<_> = (0..cut.tiles).map(|tile| cut.rows(tile, rows)).collect();
                let end = tiles.iter().fold(0, |end, &(from, to)| {
                    assert!(from == end && to - from <= cut.tile_rows, "{}: {tiles:?}", what());
                    to
                });
                assert!(end == rows && cut.tile_rows <= tile_rows, "{}", what());
                assert!(cut.groups > 1 || cut.tiles == rows.div_ceil(tile_rows), "{}", what());
                let of_group = |tiles: &[(usize, usize)]| tiles[tiles.len() - 1].1 - tiles[0].0;
                let groups: Vec<usize> = tiles.chunks(cut.tiles / cut.groups).map(of_group).collect();
                let (least, most) = (groups.iter().min().unwrap(), groups.iter().max().unwrap());
                assert!(*least > 0 && most - least < 2 * cut.block, "{}: {groups:?}", what());
                let half: usize = groups[..groups.len() / 2].iter().sum();
                assert!(cut.groups % 2 == 1 || half.abs_diff(rows - half) < 2 * cut.block, "{}", what());
            }
        }
    }

    #[test]
    fn groups_are_added_up_in_one_order_whoever_has_them() {
        let tree = |groups| formula(Shares { groups, shares: 1 });
        assert_eq!([1, 2, 8].map(tree), ["0", "(0+1)", "(((0+1)+(2+3))+((4+5)+(6+7)))"]);
        for groups in [1, 2, 4, 8, MAX_GROUPS] {
            for shares in 1..=groups {
                assert_eq!(formula(Shares { groups, shares }), tree(groups), "{shares} shares");
            }
        }
    }
}

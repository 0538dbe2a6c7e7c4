//! Points that fill a cube evenly: Sobol's sequence with direction numbers of Joe & Kuo ("Constructing Sobol sequences with
//! better two-dimensional projections", SIAM J. Sci. Comput. 30, 2008; their file new-joe-kuo-6), scrambled after Owen
//! ("Randomly permuted (t,m,s)-nets and (t,s)-sequences", 1995).
//!
//! Scrambling is the nested one, done by a hash: whether digit k is flipped depends on the seed, the dimension and the k − 1
//! digits before it, so no permutation is stored and point i is made alone. Invariant: any seed keeps every elementary
//! interval's share of points.

use operant_base::{Error, Result};

/// Primitive polynomial with its leading coefficient, and the first odd numbers m, by dimension.
const DIRECTIONS: [(u32, &[u32]); 20] = [
    (1, &[1]),
    (3, &[1]),
    (7, &[1, 3]),
    (11, &[1, 3, 1]),
    (13, &[1, 1, 1]),
    (19, &[1, 1, 3, 3]),
    (25, &[1, 3, 5, 13]),
    (37, &[1, 1, 5, 5, 17]),
    (41, &[1, 1, 5, 5, 5]),
    (47, &[1, 1, 7, 11, 19]),
    (55, &[1, 1, 5, 1, 1]),
    (59, &[1, 1, 1, 3, 11]),
    (61, &[1, 3, 5, 5, 31]),
    (67, &[1, 3, 3, 9, 7, 49]),
    (91, &[1, 1, 1, 15, 21, 21]),
    (97, &[1, 3, 1, 13, 27, 49]),
    (103, &[1, 1, 1, 15, 7, 5]),
    (109, &[1, 3, 1, 15, 13, 25]),
    (115, &[1, 1, 5, 5, 19, 61]),
    (131, &[1, 3, 7, 11, 23, 15, 103]),
];

/// Binary digits of a coordinate.
const BITS: usize = 32;

/// A sequence of points in `[0, 1)^dimensions`.
#[derive(Clone, Debug)]
pub struct Sobol {
    directions: Vec<[u32; BITS]>,
    seed: Option<u64>,
}

impl Sobol {
    /// Most dimensions.
    pub const MOST_DIMENSIONS: usize = DIRECTIONS.len();

    /// The sequence as Sobol gave it; its first point is 0.
    pub fn plain(dimensions: usize) -> Result<Self> {
        if !(1..=Self::MOST_DIMENSIONS).contains(&dimensions) {
            let most = Self::MOST_DIMENSIONS;
            return Err(Error::Invalid(format!("a Sobol sequence of {dimensions} dimensions: wanted 1..={most}")));
        }
        Ok(Self { directions: DIRECTIONS[..dimensions].iter().map(directions).collect(), seed: None })
    }

    /// The sequence scrambled by a seed.
    pub fn scrambled(dimensions: usize, seed: u64) -> Result<Self> {
        Ok(Self { seed: Some(seed), ..Self::plain(dimensions)? })
    }

    /// Coordinates per point.
    pub fn dimensions(&self) -> usize {
        self.directions.len()
    }

    /// Point number `index`, in the order of Gray codes (Antonov & Saleev, 1979).
    pub fn point(&self, index: u32, out: &mut [f64]) {
        let gray = index ^ (index >> 1);
        for (dimension, (directions, out)) in self.directions.iter().zip(out).enumerate() {
            let mut digits = 0;
            let mut left = gray;
            while left != 0 {
                digits ^= directions[left.trailing_zeros() as usize];
                left &= left - 1;
            }
            *out = match self.seed {
                None => f64::from(digits) / 4_294_967_296.0,
                // The middle of the interval that 32 digits leave.
                Some(seed) => (f64::from(scramble(digits, seed, dimension as u64)) + 0.5) / 4_294_967_296.0,
            };
        }
    }

    /// Points `0..count`, `[count, dimensions]`.
    pub fn points(&self, count: u32) -> Vec<f64> {
        let dimensions = self.dimensions();
        let mut out = vec![0.0; count as usize * dimensions];
        for (i, point) in out.chunks_exact_mut(dimensions).enumerate() {
            self.point(i as u32, point);
        }
        out
    }
}

fn directions(&(polynomial, first): &(u32, &[u32])) -> [u32; BITS] {
    let degree = (31 - polynomial.leading_zeros()) as usize;
    let mut m = [0u32; BITS];
    for k in 0..BITS {
        m[k] = if degree == 0 {
            1
        } else if k < degree {
            first[k]
        } else {
            // m_k = 2 a₁ m_{k−1} ⊕ … ⊕ 2^s m_{k−s} ⊕ m_{k−s}, in as many digits as there are.
            (1..=degree).fold(m[k - degree], |sum, j| {
                sum ^ (((polynomial >> (degree - j)) & 1) * m[k - j]).wrapping_shl(j as u32)
            })
        };
    }
    std::array::from_fn(|k| m[k] << (BITS - 1 - k))
}

/// A hash with full avalanche (the finaliser of MurmurHash3 in 64 bits, Stafford's mix 13).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn scramble(digits: u32, seed: u64, dimension: u64) -> u32 {
    let stream = mix(seed ^ mix(dimension.wrapping_add(0x9e37_79b9_7f4a_7c15)));
    let mut out = 0;
    for k in 0..BITS as u32 {
        let before = if k == 0 { 0 } else { digits >> (32 - k) };
        // A one in front tells digits 0 from no digits.
        let node = u64::from(before) | 1 << k;
        let flip = (mix(stream ^ mix(node)) >> 63) as u32;
        out |= (((digits >> (31 - k)) & 1) ^ flip) << (31 - k);
    }
    out
}

/// How evenly points lie.
#[derive(Clone, Debug, PartialEq)]
pub struct Evenness {
    /// Points looked at.
    pub count: usize,
    /// Squared centred L2 discrepancy (Hickernell, "A generalized discrepancy and quadrature error bound", 1998), as SciPy gives it.
    pub centred_discrepancy: f64,
    /// Largest absolute correlation between two dimensions.
    pub correlation: f64,
    /// Largest χ² of a dimension over 16 equal bins; 37.7 or more has probability 0.001 among independent points.
    pub chi_squared: f64,
}

/// Bins of the χ² test.
const BINS: usize = 16;

impl Evenness {
    /// Limits that a design must keep: discrepancy, correlation, χ² at 0.001 with 15 degrees of freedom.
    pub const LIMITS: [f64; 3] = [0.01, 0.05, 37.697];

    /// Looks at points `[count, dimensions]`.
    pub fn of(points: &[f64], dimensions: usize) -> Self {
        let count = points.len() / dimensions;
        let n = count as f64;
        let columns: Vec<Vec<f64>> =
            (0..dimensions).map(|d| points.iter().skip(d).step_by(dimensions).copied().collect()).collect();
        let mut correlation = 0.0f64;
        let centred: Vec<Vec<f64>> = columns
            .iter()
            .map(|x| {
                let mean = x.iter().sum::<f64>() / n;
                x.iter().map(|x| x - mean).collect()
            })
            .collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let sizes: Vec<f64> = centred.iter().map(|x| dot(x, x).sqrt()).collect();
        for a in 0..dimensions {
            for b in 0..a {
                let size = (sizes[a] * sizes[b]).max(f64::MIN_POSITIVE);
                correlation = correlation.max((dot(&centred[a], &centred[b]) / size).abs());
            }
        }
        let chi_squared = columns.iter().map(|x| {
            let mut bins = [0u32; BINS];
            x.iter().for_each(|x| bins[((x * BINS as f64) as usize).min(BINS - 1)] += 1);
            let expected = n / BINS as f64;
            bins.iter().map(|&got| (f64::from(got) - expected).powi(2) / expected).sum::<f64>()
        });
        let chi_squared = chi_squared.fold(0.0, f64::max);
        Self { count, centred_discrepancy: centred_discrepancy(&columns, count), correlation, chi_squared }
    }

    /// Whether all limits are kept.
    pub fn holds(&self) -> bool {
        self.centred_discrepancy < Self::LIMITS[0]
            && self.correlation < Self::LIMITS[1]
            && self.chi_squared < Self::LIMITS[2]
    }
}

fn centred_discrepancy(columns: &[Vec<f64>], count: usize) -> f64 {
    let n = count as f64;
    let offsets: Vec<Vec<f64>> = columns.iter().map(|x| x.iter().map(|x| x - 0.5).collect()).collect();
    let mut products = vec![1.0; count];
    for x in &offsets {
        products.iter_mut().zip(x).for_each(|(p, x)| *p *= 1.0 + 0.5 * x.abs() - 0.5 * x * x);
    }
    let single: f64 = products.iter().sum();
    let mut double = 0.0;
    let half: Vec<Vec<f64>> = offsets.iter().map(|x| x.iter().map(|x| 1.0 + 0.5 * x.abs()).collect()).collect();
    for i in 0..count {
        // Pairs are the same both ways; the pair of a point with itself counts once.
        let later = &mut products[i..];
        later.fill(1.0);
        for (x, half) in columns.iter().zip(&half) {
            let (xi, hi) = (x[i], half[i] - 1.0);
            for ((p, x), h) in later.iter_mut().zip(&x[i..]).zip(&half[i..]) {
                *p *= hi + h - 0.5 * (xi - x).abs();
            }
        }
        double += 2.0 * later.iter().sum::<f64>() - later[0];
    }
    (13.0f64 / 12.0).powi(columns.len() as i32) - 2.0 / n * single + double / (n * n)
}

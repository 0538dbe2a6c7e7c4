//! All tensors of a network in one flat f32 vector, so that an optimiser, an average or a copy is one pass over memory.
//!
//! Invariant: every tensor starts at a multiple of [`ALIGN`], and what lies between tensors is 0.

use super::init::Init;
use super::saved::{self, Loaded, Metadata, Tensor};
use operant_base::{Error, Result};
use operant_device::{Aligned, check_room};
use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Elements that a tensor's start is a multiple of: the widest lanes, and a cache line.
pub const ALIGN: usize = 16;

/// One named tensor in PyTorch's layout (row-major; linear weight `[out, in]`, convolution weight `[out, in/groups, kh, kw]`).
#[derive(Clone, Debug, PartialEq)]
pub struct ParamSpec {
    /// Unique in its network.
    pub name: String,
    /// Sizes, slowest first; none for a single number.
    pub shape: Vec<usize>,
    /// Where it starts in the flat vector; [`Params::new`] sets it.
    pub offset: usize,
    /// How it begins.
    pub init: Init,
    /// False for a buffer such as a running mean: no gradient, optimisers leave it alone.
    pub trainable: bool,
    /// Whether weight decay applies: to weights of two dimensions or more, unless changed. Muon takes what decays.
    pub decay: bool,
}

impl ParamSpec {
    /// A trainable tensor.
    pub fn new(name: impl Into<String>, shape: &[usize], init: Init) -> Self {
        let decay = shape.len() >= 2;
        Self { name: name.into(), shape: shape.to_vec(), offset: 0, init, trainable: true, decay }
    }

    /// A tensor without a gradient.
    pub fn buffer(name: impl Into<String>, shape: &[usize], init: Init) -> Self {
        Self { trainable: false, decay: false, ..Self::new(name, shape, init) }
    }

    /// Elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its elements in the flat vector.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.count()
    }

    /// The same with the padding behind it: whole groups of [`ALIGN`].
    pub(super) fn padded_range(&self) -> Range<usize> {
        self.offset..(self.offset + self.count()).next_multiple_of(ALIGN)
    }
}

/// The tensors of a network.
#[derive(Clone, Debug)]
pub struct Params {
    specs: Vec<ParamSpec>,
    values: Aligned<f32>,
    version: u64,
}

impl PartialEq for Params {
    fn eq(&self, other: &Self) -> bool {
        self.specs == other.specs && self.values == other.values
    }
}

/// A number that no other call gives.
fn next_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

impl Params {
    /// Lays the tensors out one after another, whatever offsets they had; all values are 0 until [`Params::initialise`].
    pub fn new(mut specs: Vec<ParamSpec>) -> Result<Self> {
        let mut names = HashSet::new();
        let mut len = 0usize;
        for spec in &mut specs {
            let ParamSpec { name, shape, .. } = &*spec;
            if !names.insert(name.clone()) {
                return Err(Error::Invalid(format!("two parameters are named \"{name}\"; give each its own name")));
            }
            let count = shape.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
            // Elements are numbered by u32 where they are drawn.
            let Some(count) = count.filter(|&count| count > 0 && count <= u32::MAX as usize) else {
                let wanted = "wanted every size at least 1 and fewer than 2³² elements";
                return Err(Error::Invalid(format!("parameter \"{name}\" has shape {shape:?}; {wanted}")));
            };
            spec.init.check(name, shape)?;
            spec.offset = len;
            len += count.next_multiple_of(ALIGN);
        }
        check_room(&format!("a network of {len} weights"), 4 * len as u64, "make it smaller")?;
        Ok(Self { specs, values: Aligned::zeros(len), version: next_version() })
    }

    /// Gives every tensor its first values; the same seed gives the same, whatever other tensors there are.
    pub fn initialise(&mut self, seed: u64) {
        self.version = next_version();
        for spec in &self.specs {
            spec.init.fill(seed, &spec.name, &spec.shape, &mut self.values[spec.range()]);
        }
    }

    /// The tensors, in the order they lie.
    pub fn specs(&self) -> &[ParamSpec] {
        &self.specs
    }

    /// All values with their padding.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All values with their padding, which must stay 0.
    pub fn values_mut(&mut self) -> &mut [f32] {
        self.version = next_version();
        &mut self.values
    }

    /// Changes with every chance to change a value; equal versions mean equal values.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Trainable numbers.
    pub fn count(&self) -> usize {
        self.specs.iter().filter(|spec| spec.trainable).map(ParamSpec::count).sum()
    }

    /// Length of the flat vector, padding included.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no tensor.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The tensor of this name.
    pub fn spec(&self, name: &str) -> Result<&ParamSpec> {
        self.specs.iter().find(|spec| spec.name == name).ok_or_else(|| {
            let known = self.specs.iter().map(|spec| spec.name.as_str());
            Error::unknown("parameter", name, known, "specs() lists them")
        })
    }

    /// The values of one tensor.
    pub fn get(&self, name: &str) -> Result<&[f32]> {
        Ok(&self.values[self.spec(name)?.range()])
    }

    /// The values of one tensor, to be changed.
    pub fn get_mut(&mut self, name: &str) -> Result<&mut [f32]> {
        let range = self.spec(name)?.range();
        Ok(&mut self.values_mut()[range])
    }

    /// Replaces the values of one tensor.
    pub fn set(&mut self, name: &str, values: &[f32]) -> Result<()> {
        let spec = self.spec(name)?;
        if values.len() != spec.count() {
            return Err(Error::Invalid(format!(
                "parameter \"{name}\" has shape {:?}, got {} values; give {}",
                spec.shape,
                values.len(),
                spec.count()
            )));
        }
        self.get_mut(name)?.copy_from_slice(values);
        Ok(())
    }

    /// As safetensors bytes.
    pub fn to_bytes(&self, metadata: &Metadata) -> Vec<u8> {
        let tensors = self
            .specs
            .iter()
            .map(|spec| (spec.name.clone(), Tensor { shape: &spec.shape, values: &self.values[spec.range()] }));
        saved::to_bytes(tensors, metadata)
    }

    /// Takes all values from safetensors bytes and gives their metadata. The error lists every tensor that is missing, extra,
    /// of another shape or not of floats, and then nothing was changed. F16 and BF16 are widened.
    pub fn from_bytes(&mut self, bytes: &[u8]) -> Result<Metadata> {
        let wanted: Vec<_> = self.specs.iter().map(|spec| (spec.name.clone(), spec.shape.as_slice())).collect();
        let loaded = Loaded::read(bytes, &wanted)?;
        self.version = next_version();
        for (i, spec) in self.specs.iter().enumerate() {
            loaded.copy_to(i, &mut self.values[spec.range()]);
        }
        Ok(loaded.metadata)
    }

    /// Writes a safetensors file: an older one of that name is replaced whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>, metadata: &Metadata) -> Result<()> {
        saved::write_file(path.as_ref(), &self.to_bytes(metadata))
    }

    /// Reads a safetensors file as [`Params::from_bytes`] does.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.from_bytes(&saved::read_file(path.as_ref())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{Dtype, TensorView};

    fn small() -> Params {
        let mut params = Params::new(vec![
            ParamSpec::new("body.weight", &[3, 7], Init::HeNormal),
            ParamSpec::new("body.bias", &[3], Init::TorchLinear { fan_in: 7 }),
            ParamSpec::buffer("norm.mean", &[16], Init::Ones),
            ParamSpec::new("log_std", &[], Init::Constant(-0.5)),
        ])
        .unwrap();
        params.initialise(3);
        params
    }

    #[test]
    fn layout_is_aligned_and_padding_is_zero() {
        let params = small();
        let offsets: Vec<usize> = params.specs().iter().map(|spec| spec.offset).collect();
        assert_eq!(offsets, [0, 32, 48, 64]);
        assert_eq!((params.len(), params.count()), (80, 21 + 3 + 1));
        assert_eq!(params.values()[21..32], [0.0; 11]);
        assert_eq!(params.values()[64..], [[-0.5].as_slice(), &[0.0; 15]].concat());
        assert!(params.get("body.weight").unwrap().iter().all(|x| *x != 0.0));
        let decay: Vec<bool> = params.specs().iter().map(|spec| spec.decay).collect();
        assert_eq!(decay, [true, false, false, false]);
    }

    #[test]
    fn another_tensor_changes_no_other() {
        let mut specs = small().specs().to_vec();
        specs.insert(0, ParamSpec::new("new", &[100], Init::Normal { std: 1.0 }));
        let mut more = Params::new(specs).unwrap();
        more.initialise(3);
        for spec in small().specs() {
            assert_eq!(small().get(&spec.name), more.get(&spec.name));
        }
    }

    #[test]
    fn mistakes_are_named() {
        let twice = vec![ParamSpec::new("a", &[2], Init::Zeros), ParamSpec::new("a", &[3], Init::Zeros)];
        assert!(Params::new(twice).unwrap_err().to_string().contains("\"a\""));
        assert!(Params::new(vec![ParamSpec::new("a", &[2, 0], Init::Zeros)]).is_err());
        assert!(Params::new(vec![ParamSpec::new("a", &[usize::MAX, 2], Init::Zeros)]).is_err());
        let mut params = small();
        let message = params.get("body.wieght").unwrap_err().to_string();
        assert!(message.contains("did you mean \"body.weight\"?"), "{message}");
        assert!(params.set("body.bias", &[1.0]).unwrap_err().to_string().contains("[3]"));
        params.set("body.bias", &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(params.get("body.bias").unwrap(), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn bytes_restore_every_bit() {
        let mut params = small();
        params.set("body.bias", &[f32::MIN_POSITIVE / 2.0, -0.0, f32::INFINITY]).unwrap();
        let metadata = Metadata::from([("env".into(), "cartpole".into())]);
        let bytes = params.to_bytes(&metadata);
        let mut other = small();
        assert_eq!(other.from_bytes(&bytes).unwrap(), metadata);
        let bits = |params: &Params| params.values().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&params), bits(&other));
    }

    #[test]
    fn all_that_does_not_fit_is_listed_and_nothing_changes() {
        let tensor =
            |dtype, shape: &[usize], data: &'static [u8]| TensorView::new(dtype, shape.to_vec(), data).unwrap();
        let bytes = safetensors::serialize(
            [
                ("body.weight", tensor(Dtype::F32, &[7, 3], &[0; 84])),
                ("norm.mean", tensor(Dtype::F64, &[16], &[0; 128])),
                ("log_std", tensor(Dtype::F32, &[], &[0; 4])),
                ("value.bias", tensor(Dtype::F32, &[1], &[0; 4])),
            ],
            None,
        )
        .unwrap();
        let mut params = small();
        let message = params.from_bytes(&bytes).unwrap_err().to_string();
        for part in [
            "body.weight has shape [7, 3], wanted [3, 7]",
            "missing body.bias [3]",
            "norm.mean holds F64",
            "extra value.bias [1]",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert_eq!(params, small());
        assert!(params.from_bytes(b"nonsense").is_err());
    }

    #[test]
    fn short_floats_are_widened() {
        let mut params =
            Params::new(vec![ParamSpec::new("half", &[2], Init::Zeros), ParamSpec::new("brain", &[2], Init::Zeros)])
                .unwrap();
        let bytes = safetensors::serialize(
            [
                ("half", TensorView::new(Dtype::F16, vec![2], &[0x00, 0x3c, 0x00, 0xc0]).unwrap()),
                ("brain", TensorView::new(Dtype::BF16, vec![2], &[0x80, 0x3f, 0x20, 0xc0]).unwrap()),
            ],
            None,
        )
        .unwrap();
        params.from_bytes(&bytes).unwrap();
        assert_eq!(params.get("half").unwrap(), [1.0, -2.0]);
        assert_eq!(params.get("brain").unwrap(), [1.0, -2.5]);
    }

    #[test]
    fn files_come_back() {
        let path = std::env::temp_dir().join(format!("operant-params-{}.safetensors", std::process::id()));
        small().save(&path, &Metadata::new()).unwrap();
        let mut params = small();
        params.values_mut().fill(0.0);
        params.load(&path).unwrap();
        assert_eq!(params, small());
        std::fs::remove_file(&path).unwrap();
    }
}

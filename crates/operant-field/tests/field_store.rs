//! Stores of fields: records in any order, compressed or not; damage; a collection from settings to disk.

use operant_base::config;
use operant_field::Codec;
use operant_field::collect::{Collection, Settings};
use operant_field::features::{self, FRAME_LEN};
use operant_field::shards::{ArraySpec, Dtype, Layout, Shards, crc32c, half_bits};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

#[test]
fn checksums_and_halves_are_right() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    let cases = [
        (0.0, 0),
        (1.0, 0x3c00),
        (-2.0, 0xc000),
        (65_504.0, 0x7bff),
        (65_520.0, 0x7c00),
        (1e-7, 2),
        (6.1e-5, 0x03ff),
        (1.0 + 1.0 / 2048.0, 0x3c00),
        (1.0 + 3.0 / 2048.0, 0x3c02),
        (f32::INFINITY, 0x7c00),
        (2f32.powi(-24), 1),
    ];
    for (x, wanted) in cases {
        assert_eq!(half_bits(x), wanted, "{x}");
    }
    assert_eq!(half_bits(f32::NAN) & 0x7c00, 0x7c00);
    assert_ne!(half_bits(f32::NAN) & 0x03ff, 0);
}

/// Noise, numbers that repeat, nothing and one byte come back; what is cut, longer or turned over is told.
#[test]
fn codecs_give_back_what_they_took() {
    let noise: Vec<u8> = (0..600_000u32).map(|i| (i.wrapping_mul(747_796_405) >> 11) as u8 ^ (i >> 3) as u8).collect();
    for bytes in [noise, vec![7; 100_000], Vec::new(), vec![1]] {
        for codec in [Codec::None, Codec::Blosc] {
            for size in [1, 2, 4, 8] {
                if !bytes.len().is_multiple_of(size) {
                    continue;
                }
                let packed = codec.pack(bytes.clone(), size);
                assert_eq!(codec.unpack(&packed, bytes.len(), "it").unwrap(), bytes);
                assert!(packed.len() <= bytes.len() + bytes.len() / 64 + 64);
                let message = codec.unpack(&packed, bytes.len() + 1, "it").unwrap_err().to_string();
                assert!(message.contains("it is damaged"), "{message}");
                if codec == Codec::Blosc {
                    assert!(codec.unpack(&packed[..packed.len() - 1], bytes.len(), "it").is_err());
                    assert!(codec.unpack(b"no such chunk at all", bytes.len(), "it").is_err());
                    for at in 0..packed.len().min(24) {
                        let mut wrong = packed.clone();
                        wrong[at] ^= 0x85;
                        let got = codec.unpack(&wrong, bytes.len(), "it");
                        // Of numbers' and blocks' sizes and of what lies where, checksums know; nothing panics.
                        let told = at < 3 || (4..8).contains(&at) || (12..16).contains(&at);
                        assert!(got.is_err() || !told, "byte {at}");
                    }
                }
            }
        }
    }
}

/// A header that no writer makes is refused: blocks of no bytes.
#[test]
fn blocks_of_no_bytes_are_refused() {
    let mut packed = Codec::Blosc.pack(vec![7; 400], 4);
    packed[8..12].fill(0);
    assert!(Codec::Blosc.unpack(&packed, 400, "it").is_err());
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("field-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    path
}

#[test]
fn stores_keep_records_in_any_order_and_find_damage() {
    stores_keep_records(Codec::None);
    stores_keep_records(Codec::Blosc);
}

fn stores_keep_records(codec: Codec) {
    let folder = folder(&format!("store-{}", codec.name()));
    let arrays = vec![
        ArraySpec::new("a", Dtype::Float64, &[2], &["x"]),
        ArraySpec { alone: true, ..ArraySpec::new("b", Dtype::Uint8, &[300], &["y"]) },
    ];
    let layout = Layout { count: 5, per_shard: 2, arrays, codec };
    let mut store = Shards::create(&folder, layout.clone(), &serde_json::json!({}), BTreeMap::new()).unwrap();
    assert!(Shards::create(&folder, layout, &serde_json::json!({}), BTreeMap::new()).is_err());
    let record = |k: u8| {
        let numbers: Vec<u8> = [f64::from(k), 0.5].iter().flat_map(|x| x.to_le_bytes()).collect();
        vec![Some(numbers), k.is_multiple_of(2).then(|| vec![k; 300])]
    };
    let check = |store: &Shards, k: u8| {
        assert_eq!(store.numbers("a", k.into()).unwrap(), Some(vec![f64::from(k), 0.5]));
        assert_eq!(store.read("b", k.into()).unwrap(), k.is_multiple_of(2).then(|| vec![k; 300]));
    };
    for k in [3, 0, 1] {
        store.insert(k.into(), record(k)).unwrap();
        check(&store, k);
    }
    assert!(store.insert(2, vec![Some(vec![0; 7]), None]).is_err());
    // Gone without a word, as after a kill.
    let mut store = Shards::open(&folder).unwrap();
    assert_eq!(store.done(), [true, true, false, true, false]);
    [0, 1, 3].into_iter().for_each(|k| check(&store, k));
    store.flush().unwrap();
    for k in [4, 2] {
        store.insert(k.into(), record(k)).unwrap();
    }
    let store = Shards::open(&folder).unwrap();
    assert!(store.done().iter().all(|&done| done) && store.damaged().is_empty());
    (0..5).for_each(|k| check(&store, k));
    assert!(!folder.join("pending").exists());
    assert!(store.numbers("c", 0).is_err());
    let (files, numbers) = store.sizes();
    assert_eq!(numbers, 5 * 16 + 3 * 300);
    assert_eq!(codec == Codec::Blosc, files < numbers, "{files} bytes for {numbers} by {codec:?}");
    for name in ["a/c/1/0", "b/c/4/0"] {
        let path = folder.join(name);
        let whole = std::fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        bytes[1] ^= 4;
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(store.damaged(), [name]);
        assert!(store.read(&name[..1], if name.starts_with('a') { 2 } else { 4 }).is_err());
        std::fs::write(&path, whole).unwrap();
    }
    let path = folder.join("manifest.json");
    let mut manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(manifest["version"], if codec == Codec::None { 1 } else { 2 });
    manifest["version"] = 3.into();
    std::fs::write(&path, manifest.to_string()).unwrap();
    let message = Shards::open(&folder).map(drop).unwrap_err().to_string();
    assert!(message.contains("version 3, wanted at most 2"), "{message}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Series in half precision are the same numbers, rounded; a U-AFNO's operators are collected and replayed too.
#[test]
fn series_in_half_precision_and_another_operator() {
    let text = "count = 3\nsteps = 12\nrealisations = 2\nchannels = 2\nper_shard = 2\noperator = \"uafno\"\n\
                [space]\ngrid = 16\nlayers = 1\nbase_channels = 16\nkernel = 3\nlevels = 1";
    let mut means = Vec::new();
    for more in ["series = \"f32\"\ncompression = \"none\"\n", "series = \"f16\"\n"] {
        let collection = Collection::read(&config::parse(&format!("{more}{text}"), "test").unwrap()).unwrap();
        let folder = folder(&format!("series{}", more.len()));
        let mut store = collection.create(&folder).unwrap();
        collection.run(&mut store, 1, &AtomicBool::new(false), &mut |_, _, _| {}).unwrap();
        assert_eq!(collection.replay(&store, 2).unwrap(), Vec::<String>::new());
        assert_eq!(store.layout().arrays[0].shape, [17]);
        means.push((store.numbers("metrics", 1).unwrap().unwrap(), store.numbers("features", 1).unwrap().unwrap()));
        let refused = collection.on_gpu(0).unwrap_err().to_string();
        assert!(refused.contains("operator \"uafno\" has no kernels for a GPU; take --device cpu"), "{refused}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
    let [(single, features), (half, same)] = &means[..] else { panic!("two stores") };
    assert_eq!(features, same);
    assert!(single != half && single.iter().zip(half).all(|(a, b)| (a - b).abs() <= a.abs() / 2000.0 + 1e-7));
}

/// A small collection from settings to disk, on one thread and on two, with the same bytes; and its replay.
#[test]
fn a_collection_does_not_depend_on_threads() {
    let text = "count = 5\nsteps = 12\nrealisations = 2\nchannels = 2\nframes_every = 4\nper_shard = 2\ntrajectories = \"f16\"\n\
                trajectory_every = 6\n[space]\ngrid = 16\nlayers = [2, 4]\nbase_channels = 16\nkernel = 3";
    let settings: Settings = config::read(&config::parse(text, "test").unwrap(), "").unwrap();
    let collection = Collection::new(settings).unwrap();
    let stored = |threads: usize| {
        let folder = folder(&format!("collect{threads}"));
        let mut store = collection.create(&folder).unwrap();
        let mut told = Vec::new();
        let progress =
            collection.run(&mut store, threads, &AtomicBool::new(false), &mut |_, k, _| told.push(k)).unwrap();
        assert_eq!((progress.operators, told.len(), progress.realisation_steps), (5, 5, 5 * 2 * 12));
        let store = Shards::open(&folder).unwrap();
        assert!(store.damaged().is_empty());
        let arrays = store.layout().arrays.clone();
        let all: Vec<Option<Vec<u8>>> =
            arrays.iter().flat_map(|array| (0..5).map(|k| store.read(&array.name, k).unwrap())).collect();
        assert_eq!(collection.replay(&store, 3).unwrap(), Vec::<String>::new());
        let numbers = |name: &str, k: usize| store.numbers(name, k).unwrap().unwrap();
        assert_eq!(numbers("initial_features", 2), numbers("frames", 2)[..FRAME_LEN]);
        let operator = collection.sampled(2).operator;
        let [parameters, flops, .., reach, share] = numbers("architecture", 2)[..] else { panic!("six descriptors") };
        assert_eq!(parameters as usize, operator.network().unwrap().graph.params(1).unwrap().count());
        assert_eq!((flops, reach / 16.0), (operator.flops() as f64, share));
        // What features are like over operators for training.
        let stats: Value = serde_json::from_slice(&std::fs::read(folder.join("stats.json")).unwrap()).unwrap();
        let train = collection.splits()["train"].as_array().unwrap().clone();
        let rms = features::names().iter().position(|name| name == "spatial.rms").unwrap();
        let mean = train.iter().map(|k| numbers("features", k.as_u64().unwrap() as usize)[rms]).sum::<f64>();
        let told = stats["features"]["spatial.rms"]["mean"].as_f64().unwrap();
        assert!((told - mean / train.len() as f64).abs() < 1e-12 && stats["operators"] == train.len());
        // A store from before noise was drawn as it is now is read, but not made again.
        let path = folder.join("manifest.json");
        let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        manifest["notes"].as_object_mut().unwrap().remove("draws").unwrap();
        std::fs::write(&path, manifest.to_string()).unwrap();
        let older = Shards::open(&folder).unwrap();
        assert_eq!(older.numbers("features", 2).unwrap().unwrap(), numbers("features", 2));
        let message = collection.replay(&older, 3).unwrap_err().to_string();
        assert!(message.contains("way 1, here it is 5"), "{message}");
        // Nor is it gone on with after its settings were changed, and what is lost is not taken for what was never there.
        let other = Collection::new(Settings { seed: 9, ..collection.settings.clone() }).unwrap();
        let mut store = Shards::open(&folder).unwrap();
        let error = other.run(&mut store, 1, &AtomicBool::new(false), &mut |_, _, _| ()).unwrap_err().to_string();
        assert!(error.contains("is not what it was begun with"), "{error}");
        std::fs::remove_file(folder.join("features/c/1/0/0")).unwrap();
        std::fs::write(folder.join("zarr.json"), "{").unwrap();
        let metadata = std::fs::read_to_string(folder.join("frames/zarr.json")).unwrap();
        std::fs::write(folder.join("frames/zarr.json"), metadata.replace("float32", "float64")).unwrap();
        assert_eq!(Shards::open(&folder).unwrap().damaged(), ["zarr.json", "frames/zarr.json", "features/c/1/0/0"]);
        let error = Shards::open(&folder).unwrap().read("features", 2).unwrap_err().to_string();
        assert!(error.contains("is gone, which manifest.json lists"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
        all
    };
    let one = stored(1);
    assert_eq!(one, stored(2));
    assert!(one.iter().all(Option::is_some));
    let splits = collection.splits();
    let count = |name: &str| splits[name].as_array().unwrap().len();
    assert_eq!(count("train") + count("valid") + count("test"), 5);
    let error = |text: &str| Collection::read(&config::parse(text, "test").unwrap()).unwrap_err().to_string();
    assert!(error("[initial]\nstructurd = 1").contains("did you mean \"structured\"?"));
    assert!(error("precision = \"f8\"").contains("unknown precision"));
    assert!(error("steps = 0").contains("at least 1"));
}

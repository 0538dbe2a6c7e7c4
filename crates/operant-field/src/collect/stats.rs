//! `stats.json` of a store: what features are like over the operators for training, to normalise by.

use super::Collection;
use crate::features;
use crate::shards::{Shards, write_whole};
use operant_base::Result;
use serde_json::{Map, Value, json};

/// The file in a store.
const FILE: &str = "stats.json";

impl Collection {
    /// Writes mean, standard deviation, least and most of every feature over operators for training, of numbers that are finite.
    pub(super) fn write_stats(&self, store: &Shards) -> Result<()> {
        let splits = self.splits();
        let train = splits["train"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        let mut rows = Vec::new();
        for k in train {
            rows.extend(store.numbers("features", k as usize)?);
        }
        let mut of_features = Map::new();
        for (i, name) in features::names().into_iter().enumerate() {
            let values: Vec<f64> = rows.iter().map(|row| row[i]).filter(|x| x.is_finite()).collect();
            let count = values.len().max(1) as f64;
            let mean = values.iter().sum::<f64>() / count;
            let std = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let told = match values.is_empty() {
                true => json!({"count": 0}),
                false => json!({"count": values.len(), "mean": mean, "std": std, "min": least, "max": most}),
            };
            of_features.insert(name, told);
        }
        let all = json!({"split": "train", "operators": rows.len(), "features": of_features});
        write_whole(&store.folder().join(FILE), format!("{all:#}\n").as_bytes())
    }
}

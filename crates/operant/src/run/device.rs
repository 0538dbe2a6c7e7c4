//! Where a run lives when its settings leave that open (`device = "auto"`).

use super::Config;
use crate::algo::ppo;
use crate::env;
use operant_base::Result;
use operant_device::cuda::Gpu;

/// The settings with `auto` decided, and in one line what was chosen and why. They are for the first GPU if it is usable and
/// has kernels for the env, the network and the algorithm as they would be set there, else for the CPU. Settings that name a device
/// stay as they are, without a line.
///
/// `resolve` gives the settings on a device, or as they are for `None`. Without a driver this costs a look for its library.
pub fn decide_device<E>(resolve: impl Fn(Option<&str>) -> Result<Config, E>) -> Result<(Config, Option<String>), E> {
    let asked = resolve(None)?;
    if asked.settings.device != "auto" {
        return Ok((asked, None));
    }
    let on_gpu = Gpu::first().and_then(|info| {
        let config = resolve(Some("cuda")).map_err(|_| "these settings do not fit a GPU".to_owned())?;
        served(&config).map_err(|error| error.to_string())?;
        Ok((config, info))
    });
    Ok(match on_gpu {
        Ok((config, info)) => (config, Some(format!("device: cuda ({} has kernels for this run)", info.name))),
        Err(reason) => (resolve(Some("cpu"))?, Some(format!("device: cpu ({reason})"))),
    })
}

/// Whether a GPU has kernels for these settings, or what of them it has none for.
fn served(config: &Config) -> Result<()> {
    let entry = env::find(&config.env)?;
    if config.envs_work_on_gpu()? {
        let params: Vec<(&str, f64)> = config.env_params.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let (num_envs, threads) = (config.settings.num_envs, config.settings.threads);
        let threads = if threads == 0 { operant_device::threads_available() } else { threads };
        return entry.check_work_on_gpu(&params, num_envs, threads);
    }
    match config.algo.as_str() {
        "ppo" => {
            let (num_envs, hosted) = (config.settings.num_envs, config.settings.env_device == "cpu");
            ppo::check_cuda(entry, &config.network, &config.own, num_envs, config.precision()?, hosted)
        }
        other => Err(operant_base::Error::Invalid(format!("{other} has no kernels for a GPU"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use operant_base::config::{self, Table};

    fn resolved(env: &'static str, words: &'static [&'static str]) -> impl Fn(Option<&str>) -> Result<Config> {
        move |device| {
            let mut over = Table::new();
            words.iter().try_for_each(|word| config::assign(&mut over, word))?;
            if let Some(device) = device {
                config::assign(&mut over, &format!("device={device}"))?;
            }
            Config::resolve("ppo", env, over)
        }
    }

    #[test]
    fn what_is_named_stays_and_auto_is_decided() {
        let (config, line) = decide_device(resolved("cartpole", &["device=cpu"])).unwrap();
        assert_eq!((config.settings.device.as_str(), line), ("cpu", None));
        let (config, line) = decide_device(resolved("cartpole", &[])).unwrap();
        let line = line.unwrap();
        assert!(line.starts_with(&format!("device: {} (", config.settings.device)), "{line}");
        assert_eq!(config.settings.device == "cuda", Gpu::first().is_ok());
        // No kernels, with or without a GPU.
        assert_eq!(decide_device(resolved("gridworld", &[])).unwrap().0.settings.device, "cpu");
    }

    #[test]
    fn growth_takes_a_gpu_where_that_is_faster() {
        let decided = |words: &'static [&'static str]| served(&resolved("growth", words)(Some("cuda")).unwrap());
        decided(&["env.side=32", "num_envs=4", "threads=16"]).unwrap();
        decided(&["env.side=8", "num_envs=16", "threads=2"]).unwrap();
        let message = decided(&["env.side=8", "num_envs=4", "threads=4"]).unwrap_err().to_string();
        assert!(message.contains("8 x 8 pixels and a thread for each env"), "{message}");
    }

    #[test]
    fn shipped_settings_for_a_gpu_have_kernels_and_others_say_what_has_none() {
        for (algo, env, _) in super::super::SHIPPED.iter().filter(|(algo, ..)| algo.ends_with("/cuda")) {
            let table = config::parse("device = \"cuda\"", "test").unwrap();
            let config = Config::resolve(algo.trim_end_matches("/cuda"), env, table).unwrap();
            served(&config).unwrap();
        }
        for (words, wanted) in [
            (&["device=cuda", "network.memory=lstm", "ppo.overlap=true"][..], "ppo.overlap"),
            (&["device=cuda", "ppo.popart=true"], "popart"),
            (&["device=cuda", "env_device=cpu", "ppo.overlap=true"], "envs that the CPU steps"),
        ] {
            let mut over = Table::new();
            words.iter().for_each(|word| config::assign(&mut over, word).unwrap());
            let message = served(&Config::resolve("ppo", "cartpole", over).unwrap()).unwrap_err().to_string();
            assert!(message.contains(wanted), "{message}");
        }
    }
}

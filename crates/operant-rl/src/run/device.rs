//! Where a run lives when its settings leave that open (`device = "auto"`).

use super::Config;
use crate::algo::GpuSetting;

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
        check_gpu(&config).map_err(|error| error.to_string())?;
        Ok((config, info))
    });
    Ok(match on_gpu {
        Ok((config, info)) => (config, Some(format!("device: cuda ({} has kernels for this run)", info.name))),
        Err(reason) => (resolve(Some("cpu"))?, Some(format!("device: cpu ({reason})"))),
    })
}

/// Whether a GPU has kernels for these settings, or what of them it has none for.
pub fn check_gpu(config: &Config) -> Result<()> {
    let entry = config.registered()?;
    if config.envs_work_on_gpu()? {
        let (num_envs, threads) = (config.settings.num_envs, config.settings.threads);
        let threads = if threads == 0 { operant_device::threads_available() } else { threads };
        return entry.check_work_on_gpu(&config.params(), num_envs, threads);
    }
    let Some(check) = config.algorithm().check_gpu else {
        return Err(operant_base::Error::Invalid(format!("{} has no kernels for a GPU", config.algo)));
    };
    check(&GpuSetting {
        env: entry,
        num_envs: config.settings.num_envs,
        hosted: config.settings.env_device == "cpu",
        network: &config.network,
        settings: &config.own,
        precision: config.precision()?,
    })
}

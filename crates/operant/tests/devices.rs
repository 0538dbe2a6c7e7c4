//! Where runs live whose settings leave that open, and what a GPU has kernels for.

use operant::config::{self, Table};
use operant::device::cuda::Gpu;
use operant::run::{Config, check_gpu, decide_device};
use operant::{CATALOGUE, Result, Shipped};

fn resolved(env: &'static str, words: &'static [&'static str]) -> impl Fn(Option<&str>) -> Result<Config> {
    move |device| {
        let mut over = Table::new();
        words.iter().try_for_each(|word| config::assign(&mut over, word))?;
        if let Some(device) = device {
            config::assign(&mut over, &format!("device={device}"))?;
        }
        Config::resolve(&CATALOGUE, "ppo", env, over)
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
    let decided = |words: &'static [&'static str]| check_gpu(&resolved("growth", words)(Some("cuda")).unwrap());
    decided(&["env.side=32", "num_envs=4", "threads=16"]).unwrap();
    decided(&["env.side=8", "num_envs=16", "threads=2"]).unwrap();
    let message = decided(&["env.side=8", "num_envs=4", "threads=4"]).unwrap_err().to_string();
    assert!(message.contains("8 x 8 pixels and a thread for each env"), "{message}");
}

#[test]
fn shipped_settings_for_a_gpu_have_kernels_and_others_say_what_has_none() {
    for Shipped { algo, env, .. } in CATALOGUE.shipped.iter().filter(|shipped| shipped.algo.ends_with("/cuda")) {
        let table = config::parse("device = \"cuda\"", "test").unwrap();
        let config = Config::resolve(&CATALOGUE, algo.trim_end_matches("/cuda"), env, table).unwrap();
        check_gpu(&config).unwrap();
    }
    for (words, wanted) in [
        (&["device=cuda", "network.memory=lstm", "ppo.overlap=true"][..], "ppo.overlap"),
        (&["device=cuda", "ppo.popart=true"], "popart"),
        (&["device=cuda", "env_device=cpu", "ppo.overlap=true"], "envs that the CPU steps"),
    ] {
        let mut over = Table::new();
        words.iter().for_each(|word| config::assign(&mut over, word).unwrap());
        let message =
            check_gpu(&Config::resolve(&CATALOGUE, "ppo", "cartpole", over).unwrap()).unwrap_err().to_string();
        assert!(message.contains(wanted), "{message}");
    }
}

#[test]
fn growth_learns_on_the_cpu_beside_a_gpu() {
    let staged = |text: &str| {
        let over = config::parse(text, "test").unwrap();
        Config::resolve(&CATALOGUE, "ppo", "growth", over).unwrap().stages_envs().unwrap()
    };
    assert!(staged("device = \"cuda\"\nenv_device = \"cpu\"") && !staged("device = \"cuda\""));
}

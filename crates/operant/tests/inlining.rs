//! Lane code must be inlined whole into its `#[target_feature]` body: an intrinsic that stands alone in the program
//! means that some call was not, and the speed is lost in silence.

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn no_intrinsic_stands_alone() {
    use operant::env::{Options, VARIANTS, all};
    // Building every env keeps every kernel in this program.
    for entry in all().chain(VARIANTS) {
        entry.build(&[], &Options::new(1)).unwrap();
    }
    network_kernels();
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    // A function that stands alone has a mangled symbol: its name and a hash that begins with 17h.
    let symbols = |prefix: &str| {
        let starts = program.windows(prefix.len()).enumerate().filter(|(_, window)| *window == prefix.as_bytes());
        let names = starts.map(|(at, _)| {
            let word = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
            program[at..].iter().take_while(word).map(|&b| b as char).collect::<String>()
        });
        names.filter(|name| name.contains("17h")).collect::<Vec<_>>()
    };
    assert!(!symbols("Entry6avx512").is_empty() && !symbols("Entry4avx2").is_empty(), "the symbol table can't be read");
    for prefix in ["_mm512_", "_mm256_"] {
        assert_eq!(symbols(prefix), [""; 0], "not inlined: mark the functions that lead there, and avoid closures");
    }
}

/// Runs every kernel of optimisers and distributions once.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn network_kernels() {
    use operant::lanes::{Backend, Math, Width};
    use operant::nn::dist::{Categorical, Draws, SquashedGaussian};
    use operant::nn::{Ema, Init, Method, Optimizer, ParamSpec, Params};
    let backend = Backend::new(Width::Auto, Math::Strict);
    let mut params = Params::new(vec![ParamSpec::new("w", &[4, 4], Init::Ones)]).unwrap();
    let grads = params.clone();
    for method in [Method::SGD, Method::default(), Method::MUON] {
        Optimizer::new(method, &params, None, backend).unwrap().step(&mut params, grads.values(), 0.1);
    }
    Ema::new(&params, backend).update(&params, 0.5);
    let draws = Draws { seed: 0, first_row: 0, step: 0 };
    let (mut actions, mut log_probs) = ([0; 4], [0.0; 4]);
    let choices = Categorical::new(grads.values(), 4, None, backend).unwrap();
    choices.sample(draws, &mut actions, &mut log_probs);
    choices.log_prob(&actions, &mut log_probs);
    choices.entropy(&mut log_probs);
    let squashed = SquashedGaussian::new(grads.values(), &[0.0; 4], 4, backend).unwrap();
    let (mut raw, mut tanh) = ([0.0; 16], [0.0; 16]);
    squashed.sample(draws, &mut raw, &mut tanh, &mut log_probs);
    squashed.log_prob(&tanh, &mut log_probs);
}

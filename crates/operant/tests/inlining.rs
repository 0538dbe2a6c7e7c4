//! Lane code must be inlined whole into its `#[target_feature]` body: an intrinsic that stands alone in the program
//! means that some call was not, and the speed is lost in silence.

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn no_intrinsic_stands_alone() {
    use operant::env::{Options, REGISTRY};
    // Building every env keeps every kernel in this program.
    for entry in REGISTRY {
        entry.build(&[], &Options::new(1)).unwrap();
    }
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
    assert!(!symbols("run_avx512").is_empty() && !symbols("run_avx2").is_empty(), "the symbol table can't be read");
    for prefix in ["_mm512_", "_mm256_"] {
        assert_eq!(symbols(prefix), [""; 0], "not inlined: mark the functions that lead there, and avoid closures");
    }
}

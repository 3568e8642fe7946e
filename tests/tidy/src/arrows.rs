//! Which crate may use which, checked against the manifests on the test's thread.

use crate::Finding;
use crate::purity::PURE_CRATES;

/// What a crate of ours may use in its product code. A crate that is not named here may use none of ours.
const ARROWS: &[(&str, &[&str])] = &[
    ("ringmain-model", &[]),
    ("ringmain-wire", &[]),
    ("ringmain-uring", &[]),
    ("ringmain-wal", &["ringmain-model"]),
    ("ringmain-engine", &["ringmain-wal", "ringmain-model"]),
    ("ringmain-driver", &["ringmain-engine", "ringmain-wal", "ringmain-model", "ringmain-uring"]),
    ("ringmain", &["ringmain-driver", "ringmain-engine", "ringmain-wire", "ringmain-model", "ringmain-wal"]),
    ("ringmain-bench", &["ringmain-wire", "ringmain-uring"]),
    ("ringmain-sim", &["ringmain-engine", "ringmain-wal", "ringmain-model"]),
    ("ringmain-tidy", &[]),
];

/// Crates of ours that a pure crate may not use even in its tests.
const IMPURE_OURS: &[&str] = &["ringmain", "ringmain-uring", "ringmain-driver", "ringmain-bench"];

/// Outside crates that bring a clock, chance, I/O or an executor; no pure crate may use them.
const IMPURE_OUTSIDE: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "futures",
    "mio",
    "libc",
    "rustix",
    "nix",
    "socket2",
    "io-uring",
    "rand",
    "getrandom",
];

/// One dependency of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    /// The crate's name as the manifest writes it.
    pub name: String,
    /// Whether only tests use it.
    pub is_for_tests: bool,
    /// Line in the manifest, from 1.
    pub line: usize,
}

/// What the rules need of a `Cargo.toml`.
#[derive(Debug, Clone)]
pub struct Manifest {
    /// Path from the repository's root.
    pub path: String,
    /// The package's name; empty for a workspace without one.
    pub name: String,
    /// Everything that the package depends on, in the manifest's order.
    pub dependencies: Vec<Dependency>,
}

impl Manifest {
    /// Reads the sections of a manifest that list dependencies. Other sections, `[workspace.dependencies]` among them,
    /// say nothing about who uses what.
    #[must_use]
    pub fn parse(path: &str, text: &str) -> Self {
        let mut manifest = Self { path: path.to_owned(), name: String::new(), dependencies: Vec::new() };
        let mut section = String::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']').to_owned();
                // `[dependencies.name]` names its one dependency in the header.
                if let Some((kind, name)) = section.rsplit_once('.').filter(|(kind, _)| is_dependency_section(kind)) {
                    let is_for_tests = kind.ends_with("dev-dependencies");
                    manifest.dependencies.push(Dependency { name: name.to_owned(), is_for_tests, line: index + 1 });
                }
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) else { continue };
            let key = key.trim().split('.').next().unwrap_or_default().trim_matches('"');
            if section == "package" && key == "name" {
                value.trim().trim_matches('"').clone_into(&mut manifest.name);
            } else if is_dependency_section(&section) {
                let is_for_tests = section.ends_with("dev-dependencies");
                manifest.dependencies.push(Dependency { name: key.to_owned(), is_for_tests, line: index + 1 });
            }
        }
        manifest
    }
}

/// Arrows that the architecture does not draw.
#[must_use]
pub fn forbidden_arrows(manifest: &Manifest) -> Vec<Finding> {
    let allowed = ARROWS.iter().find(|(name, _)| *name == manifest.name).map_or(&[][..], |(_, allowed)| allowed);
    let is_pure = PURE_CRATES.iter().any(|name| manifest.name == format!("ringmain-{name}"));
    let mut findings = Vec::new();
    let mut report = |dependency: &Dependency, why: &str| {
        let text = format!("{} → {}: {why}", manifest.name, dependency.name);
        findings.push(Finding::new(&manifest.path, dependency.line, text));
    };
    for dependency in &manifest.dependencies {
        let name = dependency.name.as_str();
        let is_ours = name == "ringmain" || name.starts_with("ringmain-");
        if is_ours && !dependency.is_for_tests && !allowed.contains(&name) {
            report(dependency, "the architecture draws no such arrow");
        }
        if is_pure && dependency.is_for_tests && IMPURE_OURS.contains(&name) {
            report(dependency, "tests of a pure crate stay pure");
        }
        if is_pure && !dependency.is_for_tests && IMPURE_OUTSIDE.contains(&name) {
            report(dependency, "a pure crate takes time, chance and I/O as arguments");
        }
        if name == "io-uring" && manifest.name != "ringmain-uring" {
            report(dependency, "only ringmain-uring names io_uring");
        }
    }
    findings
}

/// Whether a section lists dependencies of the package itself, for any target.
fn is_dependency_section(section: &str) -> bool {
    let kind = section.rsplit('.').next().unwrap_or_default();
    let is_kind = matches!(kind, "dependencies" | "dev-dependencies" | "build-dependencies");
    is_kind && (section == kind || section.starts_with("target."))
}

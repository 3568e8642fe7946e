//! Promise: the repository keeps its own rules of style and its arrows between crates.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use ringmain_tidy::{Finding, RULES, arrows, tree};
use std::fmt::Write as _;

#[test]
fn every_file_keeps_the_rules() {
    let files = tree::sources(&tree::root()).unwrap();
    assert!(files.iter().any(|file| file.path == "src/main.rs"), "the tree was not found");
    let mut report = String::new();
    for (name, rule) in RULES {
        let findings: Vec<Finding> = files.iter().flat_map(rule).collect();
        if !findings.is_empty() {
            writeln!(report, "\nrule: {name}").unwrap();
            findings.iter().for_each(|finding| writeln!(report, "  {finding}").unwrap());
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn crates_use_only_what_the_architecture_allows() {
    let files = tree::sources(&tree::root()).unwrap();
    let manifests = tree::manifests(&files);
    assert!(manifests.iter().any(|manifest| manifest.name == "ringmain-engine"), "the manifests were not found");
    let findings: Vec<String> =
        manifests.iter().flat_map(arrows::forbidden_arrows).map(|finding| finding.to_string()).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

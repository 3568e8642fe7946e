//! Reads the repository's own text files, on the test's thread.

use crate::{Manifest, SourceFile};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders that hold what was built, fetched or generated, whatever their place in the tree.
const LEFT_OUT: &[&str] =
    &["target", "node_modules", ".venv", ".git", "corpus", "corpora", "artifacts", "runs", "data"];

/// Endings of the files that are read; beside them, files without an ending that begin with `#!`.
const ENDINGS: &[&str] = &["rs", "toml", "md", "js", "mjs", "cjs", "sh", "yaml", "yml"];

/// The root of the repository that this crate was built in.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Every text file of the repository that the rules look at, sorted by path.
///
/// # Errors
/// When a folder or a file cannot be read, or a file is not UTF-8.
pub fn sources(root: &Path) -> io::Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    visit(root, root, &mut files)?;
    files.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(files)
}

/// Every manifest of a package that belongs to the workspace.
#[must_use]
pub fn manifests(files: &[SourceFile]) -> Vec<Manifest> {
    let is_manifest = |file: &&SourceFile| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml");
    let is_outside = |file: &SourceFile| file.path.starts_with("tests/fuzz/") || file.path.starts_with("perf/");
    let inside = files.iter().filter(is_manifest).filter(|file| !is_outside(file));
    inside.map(|file| Manifest::parse(&file.path, &file.text)).collect()
}

fn visit(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !LEFT_OUT.contains(&name.as_str()) {
                visit(root, &path, files)?;
            }
        } else if kind.is_file() && is_read(&path)? {
            let relative = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            files.push(SourceFile::new(&relative, &fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

fn is_read(path: &Path) -> io::Result<bool> {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some(ending) => Ok(ENDINGS.contains(&ending)),
        None => Ok(fs::read(path)?.starts_with(b"#!")),
    }
}

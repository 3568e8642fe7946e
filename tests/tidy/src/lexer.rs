//! Tells code, comments and literals of Rust source apart, byte by byte, on the calling thread.
//!
//! It is a classifier, not a parser: enough to count braces and look for words without being fooled by strings,
//! characters, raw strings, nested comments or lifetimes.

/// What a byte of source belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Program text, white space included.
    Code,
    /// A line, block or doc comment, its markers included.
    Comment,
    /// A string, byte string, raw string or character literal, its quotes included.
    Literal,
}

/// Classifies each byte of `text`; the result has the same length. An unfinished literal or comment runs to the end.
#[must_use]
pub fn classify(text: &str) -> Vec<Class> {
    let bytes = text.as_bytes();
    let mut classes = Vec::with_capacity(bytes.len());
    while classes.len() < bytes.len() {
        let at = classes.len();
        let (class, length) = next_piece(text, at);
        classes.extend(std::iter::repeat_n(class, length.clamp(1, bytes.len() - at)));
    }
    classes
}

/// The class and the length in bytes of the piece that starts at `at`.
fn next_piece(text: &str, at: usize) -> (Class, usize) {
    let bytes = text.as_bytes();
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return (Class::Comment, rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return (Class::Comment, block_comment_length(rest));
    }
    match rest[0] {
        b'"' => (Class::Literal, quoted_length(rest)),
        b'\'' => match character_length(&text[at..]) {
            Some(length) => (Class::Literal, length),
            None => (Class::Code, 1),
        },
        byte if is_word(byte) => word_or_raw_string(rest),
        _ => (Class::Code, 1),
    }
}

/// A word, unless it is the prefix of a raw string.
fn word_or_raw_string(rest: &[u8]) -> (Class, usize) {
    let length = rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len());
    if matches!(&rest[..length], b"r" | b"br" | b"cr") {
        let hashes = rest[length..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(length + hashes) == Some(&b'"') {
            let body = length + hashes + 1;
            let mut end = vec![b'"'];
            end.extend(std::iter::repeat_n(b'#', hashes));
            let found = rest[body..].windows(end.len()).position(|window| window == end);
            return (Class::Literal, found.map_or(rest.len(), |position| body + position + end.len()));
        }
    }
    (Class::Code, length)
}

/// Length of a block comment that starts `rest`; these nest.
fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Length of a quoted literal that starts `rest` with its quote.
fn quoted_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == rest[0] => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of a character literal at the start of `rest`, or nothing when the quote opens a lifetime or a label.
fn character_length(rest: &str) -> Option<usize> {
    let mut inner = rest[1..].chars();
    let first = inner.next()?;
    if first == '\\' {
        return Some(quoted_length(rest.as_bytes()));
    }
    (inner.next() == Some('\'')).then(|| 2 + first.len_utf8())
}

/// Whether a byte can be part of an identifier; every byte of a character outside ASCII counts.
fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80
}

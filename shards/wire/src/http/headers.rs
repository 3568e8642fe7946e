//! Header fields of a decoded head, borrowed from its bytes; pure, on the core that owns the connection.

use httparse::Header;
use smallvec::SmallVec;

/// Fields that fit without an allocation: browsers send about fifteen, publishers about six.
const INLINE: usize = 16;

/// Header fields in the order in which they came; names match without regard to case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers<'b> {
    fields: SmallVec<[Header<'b>; INLINE]>,
}

impl<'b> Headers<'b> {
    pub(crate) fn new(fields: &[Header<'b>]) -> Self {
        Self { fields: SmallVec::from_slice(fields) }
    }

    /// The value of the first field with this name, without the white space around it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'b [u8]> {
        self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// The value of the first field with this name, if that value is UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&'b str> {
        self.get(name).and_then(|value| str::from_utf8(value).ok())
    }

    /// Whether any field with this name lists `token` among its comma-separated elements, without regard to case: the
    /// way in which `Connection` and `Upgrade` are read.
    #[must_use]
    pub fn lists(&self, name: &str, token: &str) -> bool {
        let named = self.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        named.flat_map(|field| list(field.value)).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// All fields as name and value, names in the sender's spelling.
    pub fn iter(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> {
        self.fields.iter().map(|field| (field.name, field.value))
    }

    /// Number of fields.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there is no field at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }
}

/// Elements of a comma-separated list, trimmed; empty ones are left out, as RFC 9110 section 5.6.1.2 asks.
pub(crate) fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(trim).filter(|element| !element.is_empty())
}

/// Without spaces and tabs at both ends.
pub(crate) fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

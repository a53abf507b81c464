//! The typed key–value pairs in the head of a GGUF file.

use std::collections::BTreeMap;

/// One metadata value. The variants are GGUF's own types.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
    Array(Array),
}

/// A homogeneous array of metadata values.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<String>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
    Nested(Vec<Array>),
}

impl Value {
    /// Non-negative integer of any width, where the value is one.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// Any number as f64.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::F32(v) => Some(v.into()),
            Self::F64(v) => Some(v),
            Self::I8(v) => Some(v.into()),
            Self::I16(v) => Some(v.into()),
            Self::I32(v) => Some(v.into()),
            _ => self.as_u64().map(|v| v as f64),
        }
    }

    /// The type's name, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::String(_) => "string",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
            Self::Array(_) => "array",
        }
    }
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(v) => v.len(),
            Self::I8(v) => v.len(),
            Self::U16(v) => v.len(),
            Self::I16(v) => v.len(),
            Self::U32(v) => v.len(),
            Self::I32(v) => v.len(),
            Self::F32(v) => v.len(),
            Self::Bool(v) => v.len(),
            Self::String(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::I64(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Nested(v) => v.len(),
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements as non-negative integers, where they are.
    pub fn as_u64s(&self) -> Option<Vec<u64>> {
        match self {
            Self::U8(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Self::U16(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Self::U32(v) => Some(v.iter().map(|&x| x.into()).collect()),
            Self::U64(v) => Some(v.clone()),
            Self::I8(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            Self::I16(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            Self::I32(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            Self::I64(v) => v.iter().map(|&x| x.try_into().ok()).collect(),
            _ => None,
        }
    }
}

/// All pairs of a file, by key.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata(BTreeMap<String, Value>);

impl Metadata {
    /// An empty set of pairs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key`, returning what was there before.
    pub fn insert(&mut self, key: impl Into<String>, value: Value) -> Option<Value> {
        self.0.insert(key.into(), value)
    }

    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// All pairs in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no pair.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `key` as a string.
    pub fn string(&self, key: &str) -> Option<&str> {
        match self.get(key) {
            Some(Value::String(s)) => Some(s),
            _ => None,
        }
    }

    /// `key` as a non-negative integer of any width.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?.as_u64()
    }

    /// `key` as a number.
    pub fn f64(&self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// `key` as a truth value.
    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.get(key) {
            Some(Value::Bool(b)) => Some(*b),
            _ => None,
        }
    }

    /// `key` as an array.
    pub fn array(&self, key: &str) -> Option<&Array> {
        match self.get(key) {
            Some(Value::Array(a)) => Some(a),
            _ => None,
        }
    }

    /// `key` as an array of strings.
    pub fn strings(&self, key: &str) -> Option<&[String]> {
        match self.array(key) {
            Some(Array::String(v)) => Some(v),
            _ => None,
        }
    }

    /// `key` as an array of f32.
    pub fn f32s(&self, key: &str) -> Option<&[f32]> {
        match self.array(key) {
            Some(Array::F32(v)) => Some(v),
            _ => None,
        }
    }

    /// `key` as an array of i32.
    pub fn i32s(&self, key: &str) -> Option<&[i32]> {
        match self.array(key) {
            Some(Array::I32(v)) => Some(v),
            _ => None,
        }
    }
}

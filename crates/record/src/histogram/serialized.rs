//! The serialization of histograms.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::Error as _};

use super::{Histogram, Summary};

/// A histogram in results: its summary, and all counts for programs.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Histogram")]
struct SerializedHistogram {
    #[serde(flatten)]
    summary: Summary,
    /// Compressed HdrHistogram V2, base64, in nanoseconds.
    hdr_v2_deflate_base64: String,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let hdr_v2_deflate_base64 = self.to_base64().map_err(S::Error::custom)?;
        SerializedHistogram { summary: self.summary(), hdr_v2_deflate_base64 }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let serialized = SerializedHistogram::deserialize(deserializer)?;
        Self::from_base64(&serialized.hdr_v2_deflate_base64).map_err(D::Error::custom)
    }
}

schemars::by_hand!(Histogram, |generator| SerializedHistogram::json_schema(generator));

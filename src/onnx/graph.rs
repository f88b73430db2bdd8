//! Nodes and constants of a graph, in the order in which they are evaluated.

use super::proto::ProtoMessage;
use nalgebra::DMatrix;

/// `TensorProto.DataType` of 64-bit integers.
const INT64: i64 = 7;
/// `TensorProto.DataType` of 64-bit floats.
const DOUBLE: i64 = 11;
/// `AttributeProto.AttributeType` of one integer.
const INT: i64 = 2;

/// An array, row-major.
pub(super) struct Array {
    shape: Vec<usize>,
    kind: i64,
    /// Little endian.
    bytes: Vec<u8>,
}

impl Array {
    pub(super) fn new<const AXES: usize>(shape: [usize; AXES], values: impl Iterator<Item = f64>) -> Self {
        let bytes: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
        assert_eq!(bytes.len(), 8 * shape.iter().product::<usize>(), "as many numbers as the shape says");
        Self { shape: shape.to_vec(), kind: DOUBLE, bytes }
    }

    pub(super) fn row(values: &[f64]) -> Self {
        Self::new([values.len()], values.iter().copied())
    }

    pub(super) fn matrix(values: &DMatrix<f64>) -> Self {
        Self::new([values.nrows(), values.ncols()], values.transpose().iter().copied())
    }

    /// Whole numbers: axes and columns.
    pub(super) fn indices(values: &[i64]) -> Self {
        Self { shape: vec![values.len()], kind: INT64, bytes: values.iter().flat_map(|v| v.to_le_bytes()).collect() }
    }

    /// A `TensorProto`.
    fn message(&self, name: &str) -> ProtoMessage {
        let shape = self.shape.iter().fold(ProtoMessage::default(), |message, &axis| message.int(1, axis as i64));
        shape.int(2, self.kind).text(8, name).bytes(9, &self.bytes)
    }
}

/// A graph that grows. It makes the names of nodes and constants.
#[derive(Default)]
pub(super) struct Graph {
    nodes: Vec<ProtoMessage>,
    constants: Vec<ProtoMessage>,
    outputs: Vec<ProtoMessage>,
}

impl Graph {
    /// The name of an array.
    pub(super) fn constant(&mut self, array: Array) -> String {
        let name = format!("constant_{}", self.constants.len());
        self.constants.push(array.message(&name));
        name
    }

    /// The name of a single number.
    pub(super) fn number(&mut self, value: f64) -> String {
        self.constant(Array::new([], std::iter::once(value)))
    }

    /// The name of the result of an operator.
    pub(super) fn node(&mut self, op: &str, inputs: &[&str]) -> String {
        self.add(op, inputs, None)
    }

    /// The sum along the axes that the constant `axes` holds; `keeps` keeps these as axes of length 1.
    pub(super) fn sum(&mut self, of: &str, axes: &str, keeps: bool) -> String {
        self.add("ReduceSum", &[of, axes], Some(("keepdims", i64::from(keeps))))
    }

    /// Some columns of a matrix.
    pub(super) fn columns(&mut self, of: &str, which: &[usize]) -> String {
        let which: Vec<i64> = which.iter().map(|&d| d as i64).collect();
        let which = self.constant(Array::indices(&which));
        self.add("Gather", &[of, &which], Some(("axis", 1)))
    }

    /// Flags as numbers, 0 and 1.
    pub(super) fn cast(&mut self, of: &str) -> String {
        self.add("Cast", &[of], Some(("to", DOUBLE)))
    }

    /// Matrices side by side.
    pub(super) fn concat(&mut self, parts: &[String]) -> String {
        self.add("Concat", &parts.iter().map(String::as_str).collect::<Vec<_>>(), Some(("axis", 1)))
    }

    /// Call a result `name` to the outside: (n,), or (n, `width`).
    pub(super) fn output(&mut self, name: &str, source: &str, width: Option<usize>) {
        self.push("Identity", &[source], name, None);
        self.outputs.push(numbers(name, width));
    }

    /// The whole graph, a `GraphProto`, with one input (n, `width`).
    pub(super) fn finish(self, name: &str, input: &str, width: usize) -> ProtoMessage {
        let Self { nodes, constants, outputs } = self;
        let named = ProtoMessage::default().messages(1, &nodes).text(2, name).messages(5, &constants);
        named.message(11, &numbers(input, Some(width))).messages(12, &outputs)
    }

    fn add(&mut self, op: &str, inputs: &[&str], attribute: Option<(&str, i64)>) -> String {
        let name = format!("{}_{}", op.to_lowercase(), self.nodes.len());
        self.push(op, inputs, &name, attribute);
        name
    }

    /// A `NodeProto`, whose result has its name.
    fn push(&mut self, op: &str, inputs: &[&str], name: &str, attribute: Option<(&str, i64)>) {
        let read = inputs.iter().fold(ProtoMessage::default(), |node, input| node.text(1, input));
        let attribute = attribute.map(|(key, value)| ProtoMessage::default().text(1, key).int(3, value).int(20, INT));
        self.nodes.push(read.text(2, name).text(3, name).text(4, op).messages(5, &attribute));
    }
}

/// A `ValueInfoProto`: an input or output (n,), or (n, `width`).
fn numbers(name: &str, width: Option<usize>) -> ProtoMessage {
    let rows = ProtoMessage::default().text(2, "n");
    let columns = width.map(|width| ProtoMessage::default().int(1, width as i64));
    let shape = ProtoMessage::default().message(1, &rows).messages(1, &columns);
    let tensor = ProtoMessage::default().int(1, DOUBLE).message(2, &shape);
    ProtoMessage::default().text(1, name).message(2, &ProtoMessage::default().message(1, &tensor))
}

"""What is in a record: fields by name, as this package writes them or as TensorFlow did.

fields      encode and decode the fields of a record
tf_example  decode a tf.Example without TensorFlow
"""

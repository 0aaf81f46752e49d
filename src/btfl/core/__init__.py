"""What a client keeps and what it is made of: needs numpy, scipy and safetensors only."""

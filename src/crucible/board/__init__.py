"""Records of many runs -> rows, ranks and ties. Knows neither how a run was made nor how it is printed."""

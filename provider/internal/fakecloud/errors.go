package fakecloud

import (
	"fmt"
	"net/http"
)

// apiError is an answer that is not a success. Its body is one of the shapes
// that the vendor's SDK tells apart by their "type".
type apiError struct {
	status      int
	contentType string // "" means application/json
	body        errorBody
}

func (e *apiError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.status, e.body.Type, e.body.Message)
}

type errorBody struct {
	Type         string        `json:"type,omitempty"`
	Message      string        `json:"message"`
	Precondition string        `json:"precondition,omitempty"`
	HelpMessage  string        `json:"help_message,omitempty"`
	Resource     string        `json:"resource,omitempty"`
	ResourceID   string        `json:"resource_id,omitempty"`
	CurrentState string        `json:"current_state,omitempty"`
	Method       string        `json:"method,omitempty"`
	Reason       string        `json:"reason,omitempty"`
	Quota        *int          `json:"quota,omitempty"`
	Current      *int          `json:"current,omitempty"`
	Details      []errorDetail `json:"details,omitempty"`
}

type errorDetail struct {
	ArgumentName string `json:"argument_name,omitempty"`
	Reason       string `json:"reason,omitempty"`
	HelpMessage  string `json:"help_message,omitempty"`
	Resource     string `json:"resource,omitempty"`
	Action       string `json:"action,omitempty"`
	Quota        *int   `json:"quota,omitempty"`
	Current      *int   `json:"current,omitempty"`
}

// The resource names in 404 bodies.
const (
	resServer        = "instance_server"
	resLocalVolume   = "instance_volume"
	resImage         = "instance_image"
	resIP            = "instance_ip"
	resSecurityGroup = "instance_security_group"
	resPlacement     = "instance_placement_group"
	resNIC           = "instance_private_nic"
	resBlockVolume   = "volume"
	resMarketplace   = "MarketplaceImage"

	resSnapshot       = "snapshot"
	resPrivateNetwork = "private_network"
	resVPC            = "vpc"
	resApplication    = "application"
	resPolicy         = "policy"
	resAccessKey      = "access_key"
	resGroup          = "group"
	resUser           = "user"
	resSSHKey         = "ssh_key"
	resProject        = "project_id"
	resSecurityRule   = "instance_security_group_rule"
)

func deniedAuthentication(reason string) error {
	return &apiError{status: http.StatusUnauthorized, body: errorBody{
		Type: "denied_authentication", Message: "authentication is denied", Method: "api_key", Reason: reason,
	}}
}

func permissionDenied(resource, action string) error {
	return &apiError{status: http.StatusForbidden, body: errorBody{
		Type: "permissions_denied", Message: "insufficient permissions",
		Details: []errorDetail{{Resource: resource, Action: action}},
	}}
}

func notFound(resource, id string) error {
	return &apiError{status: http.StatusNotFound, body: errorBody{
		Type: "not_found", Message: "resource is not found", Resource: resource, ResourceID: id,
	}}
}

func invalid(details ...errorDetail) error {
	return &apiError{status: http.StatusBadRequest, body: errorBody{
		Type: "invalid_arguments", Message: "invalid argument(s)", Details: details,
	}}
}

func required(argument string) errorDetail {
	return errorDetail{ArgumentName: argument, Reason: "required", HelpMessage: "required key not provided"}
}

func constraint(argument, help string) errorDetail {
	return errorDetail{ArgumentName: argument, Reason: "constraint", HelpMessage: help}
}

// legacyInvalid is the older envelope, still in use for some image mistakes.
func legacyInvalid(message string) error {
	return &apiError{status: http.StatusBadRequest, body: errorBody{Type: "invalid_request_error", Message: message}}
}

// precondition takes the status: 400 on Instances v1, 412 elsewhere.
func precondition(status int, what, help string) error {
	return &apiError{status: status, body: errorBody{
		Type: "precondition_failed", Message: "precondition is not respected", Precondition: what, HelpMessage: help,
	}}
}

func alreadyExists(resource, id string) error {
	return &apiError{status: http.StatusConflict, body: errorBody{
		Type: "already_exists", Message: "resource already exists", Resource: resource, ResourceID: id,
		HelpMessage: "the name is taken",
	}}
}

func transient(resource, id, state string) error {
	return &apiError{status: http.StatusConflict, body: errorBody{
		Type: "transient_state", Message: "resource is in a transient state",
		Resource: resource, ResourceID: id, CurrentState: state,
	}}
}

// locked is inferred: the type is in the SDK, no answer is recorded.
func locked(id string) error {
	return &apiError{status: http.StatusLocked, body: errorBody{
		Type: "locked", Message: "resource is locked", Resource: resServer, ResourceID: id,
	}}
}

func outOfStock(commercialType string) error {
	return &apiError{status: http.StatusPreconditionFailed, body: errorBody{
		Type: "out_of_stock", Message: "out of stock", Resource: commercialType,
	}}
}

// quotaExceeded is the flat body of 2026, which the SDK decodes into an error
// without details.
func quotaExceeded(resource string, quota, current int) error {
	return &apiError{status: http.StatusForbidden, body: errorBody{
		Type: "quotas_exceeded", Message: "Quota exceeded for this resource.",
		Resource: resource, Quota: &quota, Current: &current,
	}}
}

// overQuota answers in the body that SetQuotaBody chose.
func (c *Cloud) overQuota(resource string, quota, current int) error {
	switch c.switches.quotaBody {
	case QuotaBodyLegacy:
		return &apiError{status: http.StatusForbidden, body: errorBody{Type: "invalid_request_error", Message: "Quota exceeded for this resource."}}
	case QuotaBodyStandard:
		return &apiError{status: http.StatusForbidden, body: errorBody{
			Type: "quotas_exceeded", Message: "quota(s) exceeded for this resource",
			Details: []errorDetail{{Resource: resource, Quota: &quota, Current: &current}},
		}}
	default:
		return quotaExceeded(resource, quota, current)
	}
}

// wrongState refuses an action. The status and the words are recorded, the
// current envelope is not.
func (c *Cloud) wrongState(help string) error {
	if c.switches.legacy {
		return legacyInvalid(help)
	}
	return precondition(http.StatusBadRequest, "unknown_precondition", help)
}

func stillInUse(help string) error {
	return precondition(http.StatusBadRequest, "resource_still_in_use", help)
}
